"""Images in requests: which models take them, and the form in which they are sent.

An image is never decoded here. Its header tells type and size, and one that no server would take is only named.
"""

import base64
import re
from collections.abc import Callable

from chatops.domain.files import IMAGE_TYPES, FileRef, image_size, media_type
from chatops.policy.registry import ModelSpec, ModelType

ReadFile = Callable[[FileRef], bytes | None]
"""Returns the bytes of a kept file; None if they are gone."""
IMAGES = "images"
"""Name of the images of a request among the fields that a server may refuse."""
MOST_BYTES = 5_000_000
"""Largest image that all common servers accept."""
MOST_PIXELS = 8_000
"""Longest side that all common servers accept."""
_SEES = re.compile(
    r"gpt-(4o|4\.1|4-turbo|[5-9])|(^|/)o[134](-|$)|claude|gemini|gemma-?3|llava|pixtral|llama-?4|vision|[-_.0-9]vl\b"
    r"|internvl|minicpm-v|kimi-k2\.[5-9]|glm-4\.\dv|mistral-(small|medium)-3"
)
"""Families of models that are known to take images, by their `model_name`."""


def takes_images(spec: ModelSpec) -> bool:
    """Return True if the model takes images: the registry's key `images`, else by its family."""
    if spec.images is not None:
        return spec.images
    return spec.type is ModelType.GEMINI or _SEES.search(spec.model_name.lower()) is not None


def data_url(data: bytes | None) -> str:
    """Return the image as a data URL; empty if the bytes are gone or no image that a server would take."""
    if data is None or len(data) > MOST_BYTES or (type_ := media_type(data[:64])) not in IMAGE_TYPES:
        return ""
    size = image_size(data)
    if size is None or max(size) > MOST_PIXELS:
        return ""
    return f"data:{type_};base64,{base64.b64encode(data).decode()}"
