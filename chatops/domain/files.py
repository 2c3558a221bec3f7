"""Files of a session: what messages and results say about one, and what its first bytes tell. Nothing is decoded."""

import struct

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sanitize import sanitize

IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""The images that model servers take."""
OTHER_TYPE = "application/octet-stream"
_MAX_SHOWN_NAME = 120
"""Characters of a name: names of tools' files are untrusted, and a longer one would push other text off a line."""
_JPEG_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
"""JPEG markers of a frame header, ITU-T T.81 table B.1."""


@frozen_dataclass
class FileRef:
    """A file or folder that the user named in a message, or a file that a tool returned."""

    path: str
    """As the user wrote it, relative to the workspace; a folder ends in a slash. Of a tool's file: its name."""
    size: int = 0
    """Bytes of the file, or of a folder's listing."""
    digest: str = ""
    """SHA-256 of the attached bytes in hex; empty for a folder."""
    cut: bool = False
    """True if only the beginning is attached."""
    problem: str = ""
    """Reason why it is not attached, as a clause; empty if it is."""
    type: str = ""
    """Media type of a file whose bytes are kept beside the session; empty if its text is in the message."""

    @property
    def attachment(self) -> str:
        """A line on how much of a file that a message names is attached, or why nothing is; not sanitised."""
        if self.problem:
            return f"not attached: {self.path}: {self.problem}"
        beginning = ", the beginning" if self.cut else ""
        type_ = f"{self.type}, " if self.type else ""
        return f"attached: {self.path} ({type_}{self.size:,} bytes{beginning})"

    @property
    def is_image(self) -> bool:
        """True for an image that is kept."""
        return self.type in IMAGE_TYPES and not self.problem

    @property
    def about(self) -> str:
        """Type and size, or the problem; not sanitised."""
        return self.problem or ", ".join(filter(None, (self.type, f"{self.size:,} bytes")))

    def __str__(self) -> str:
        """Return name, type and size, or the problem, on one line."""
        return f"{shown_name(self.path)}: {self.problem}" if self.problem else f"{shown_name(self.path)} ({self.about})"


@frozen_dataclass(kw_only=False)
class File:
    """A file that a tool returns: its bytes, and a name that is only shown."""

    name: str
    data: bytes


def shown_name(path: str) -> str:
    """Return the last part of a path for display, sanitised and cut."""
    name = path.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return sanitize(name, newlines=False)[:_MAX_SHOWN_NAME] or "unnamed"


def media_type(data: bytes) -> str:
    """Return the media type found in the bytes; names and servers' claims are ignored."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    if data.startswith(b"%PDF-"):
        return "application/pdf"
    if b"\0" in data:
        return OTHER_TYPE
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return OTHER_TYPE
    return "text/plain"


def image_size(data: bytes) -> tuple[int, int] | None:
    """Return width and height in pixels from the header of an image; None if it has none that can be read."""
    try:
        match media_type(data[:64]):
            case "image/png":
                size = struct.unpack(">II", data[16:24]) if data[12:16] == b"IHDR" else None
            case "image/gif":
                size = struct.unpack("<HH", data[6:10])
            case "image/webp":
                size = _webp_size(data)
            case "image/jpeg":
                size = _jpeg_size(data)
            case _:
                size = None
    except (struct.error, IndexError):  # The header is cut off.
        return None
    return (size[0], size[1]) if size is not None and all(size) else None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    """Read one of the three headers of RFC 9649, sections 2.5 to 2.7."""
    match data[12:16]:
        case b"VP8X":
            return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
        case b"VP8L":
            bits = int.from_bytes(data[21:25], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            width, height = struct.unpack("<HH", data[26:30])
            return width & 0x3FFF, height & 0x3FFF
        case _:
            return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    """Go through the segments (marker, length, content) to the first frame header, ITU-T T.81 section B.2.2."""
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # A fill byte before the marker.
            at += 1
            continue
        if marker in _JPEG_FRAMES:
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        length = struct.unpack(">H", data[at + 2 : at + 4])[0]
        if length < 2:
            return None
        at += 2 + length
    return None
