"""Small previews of images, decoded by Pillow in an isolated subprocess.

The bytes are hostile: a tool, an MCP server or a cloned folder has brought them, and decoders of images have had many
holes. So nothing decodes them in this process. The header is read first, by a few lines of our own, and refuses what
would take too much memory. The subprocess has limits of memory and time. Once the library is loaded, it gives up the
right to open anything: no file, no socket, no other program. What it returns is checked for its shape, and no byte of
the image's file ever reaches the terminal.
"""

import base64
import io
import resource
import warnings
from collections.abc import Mapping
from importlib.util import find_spec

from chatops.domain.files import image_size
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.sandbox.isolated import IsolatedCallError, Limits, run_isolated

WIDTH, HEIGHT = 60, 24
"""Most pixels of a preview: columns, and two for each of twelve lines."""
FINE_WIDTH, FINE_HEIGHT = 8 * WIDTH, 8 * HEIGHT
"""The same for terminals that draw images themselves."""
MAX_PIXELS = 30_000_000
"""Pixels of an image that is decoded: 120 MB at four bytes each."""
_LIMITS = Limits(cpu_s=4, wait_s=20.0, memory=1 << 30)
"""For an image of `MAX_PIXELS`, its copies, and the library."""
_FORMATS = ("PNG", "JPEG", "GIF", "WEBP")
"""Pillow's names of `IMAGE_TYPES`."""
_CHANNELS = 4
"""Bytes of a pixel: red, green, blue and alpha."""
_TOO_LARGE = "too large to preview"


@frozen_dataclass(kw_only=False)
class Raster:
    """A small picture: rows of pixels with red, green, blue and alpha."""

    width: int
    height: int
    pixels: bytes


@frozen_dataclass
class Picture:
    """An image as far as it can be shown."""

    size: tuple[int, int] | None
    """Width and height in pixels; None if its header does not say."""
    raster: Raster | None = None
    fine: Raster | None = None
    """The same with more pixels, if that was wanted."""
    image_id: int = 0
    """Number by which the terminal has the fine one; 0: it has none."""
    problem: str = ""
    """Reason why there is no preview, as a clause; empty if there is one or none was wanted."""


def picture_of(data: bytes, *, preview: bool, fine: bool = False) -> Picture:
    """Return the size of an image, and a preview of its first frame if that is wanted and can be made. Blocks.

    With `fine`, there is one with more pixels too.
    """
    size = image_size(data)
    if not preview or find_spec("PIL") is None:
        return Picture(size=size)
    if size is None:
        return Picture(size=None, problem="damaged")
    if size[0] * size[1] > MAX_PIXELS:
        return Picture(size=size, problem=_TOO_LARGE)
    try:
        rasters = run_isolated(decode_image, limits=_LIMITS, data=base64.b64encode(data).decode("ascii"), fine=fine)
    except IsolatedCallError as error:
        return Picture(size=size, problem=f"cannot be decoded: {error}")
    if rasters is None:
        return Picture(size=size, problem=_TOO_LARGE)
    small = _read_raster(rasters, "small", max_width=WIDTH, max_height=HEIGHT)
    large = _read_raster(rasters, "fine", max_width=FINE_WIDTH, max_height=FINE_HEIGHT) if fine else None
    return Picture(size=size, raster=small, fine=large, problem="" if small is not None else "cannot be decoded")


def decode_image(data: str, fine: bool = False) -> Mapping[str, object] | None:
    """Return small rasters of an image in base64, None if it is too large. Runs in the subprocess, which may fail."""
    from PIL import (  # the extra [images]
        GifImagePlugin,  # noqa: F401
        Image,
        ImageOps,
        JpegImagePlugin,  # noqa: F401
        MpoImagePlugin,  # noqa: F401  JPEG with further pictures, as phones make them
        PngImagePlugin,  # noqa: F401
        TiffImagePlugin,  # noqa: F401  reads the orientation of photographs
        WebPImagePlugin,  # noqa: F401
    )

    Image.preinit()
    for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC):
        resource.setrlimit(limit, (0, 0))
    warnings.simplefilter("ignore")
    with Image.open(io.BytesIO(base64.b64decode(data)), formats=_FORMATS) as image:
        # The library may see another size than the header's reader did.
        if image.width * image.height > MAX_PIXELS:
            return None
        image.draft("RGB", (4 * WIDTH, 4 * WIDTH) if not fine else (2 * FINE_WIDTH, 2 * FINE_WIDTH))
        small = image.convert("RGBA") if image.mode in ("P", "PA", "1") else image
        small.thumbnail((FINE_WIDTH, FINE_WIDTH) if fine else (WIDTH, WIDTH))
        small = ImageOps.exif_transpose(small).convert("RGBA")
        rasters = {}
        if fine:
            small.thumbnail((FINE_WIDTH, FINE_HEIGHT))
            rasters["fine"] = {"width": small.width, "height": small.height, "pixels": small.tobytes().hex()}
        small.thumbnail((WIDTH, HEIGHT))
        rasters["small"] = {"width": small.width, "height": small.height, "pixels": small.tobytes().hex()}
    return rasters


def _read_raster(rasters: object, name: str, *, max_width: int, max_height: int) -> Raster | None:
    """Return a raster of what the subprocess returned, which may be hostile; None if it has not the right shape."""
    match rasters.get(name) if isinstance(rasters, dict) else None:
        case {"width": int(width), "height": int(height), "pixels": str(text)} if (
            0 < width <= max_width and 0 < height <= max_height and len(text) == 2 * _CHANNELS * width * height
        ):
            try:
                return Raster(width, height, bytes.fromhex(text))
            except ValueError:
                return None
        case _:
            return None
