"""Previews of images: hostile files are refused or shown small, and whoever decodes them can open nothing."""

import base64
import io
import os
import socket
import struct
import subprocess
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from chatops.sandbox.isolated import Limits, run_isolated
from chatops.tools import picture
from chatops.tools.picture import HEIGHT, MAX_PIXELS, WIDTH, Picture, Raster, decode_image, picture_of
from tests.support.cases import for_each

Image = pytest.importorskip("PIL.Image")
RED, BLUE = (200, 30, 20), (10, 40, 190)


def image(kind: str, *, size: tuple[int, int] = (80, 40), **options: object) -> bytes:
    """An image whose left half is red and whose right half is blue."""
    made = Image.new("RGB", size, RED)
    made.paste(BLUE, (size[0] // 2, 0, *size))
    file = io.BytesIO()
    made.save(file, kind, **options)
    return file.getvalue()


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width: int, height: int, *chunks: bytes) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"".join([b"\x89PNG\r\n\x1a\n", header, *chunks, chunk(b"IEND", b"")])


def gif_with_a_larger_frame() -> bytes:
    """A GIF whose header says 10 × 10 pixels, and whose frame has 36 million."""
    screen = b"GIF89a" + struct.pack("<HHBBB", 10, 10, 0x80, 0, 0) + b"\0" * 6
    frame = b"," + struct.pack("<HHHHB", 0, 0, 6000, 6000, 0)
    return screen + frame + b"\x02\x02\x44\x01\0;"


def near(pixel: bytes, colour: tuple[int, int, int]) -> bool:
    return all(abs(one - other) < 25 for one, other in zip(pixel[:3], colour, strict=True)) and pixel[3] == 255


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP"])
def test_an_image_is_made_small_with_its_shape_and_colours(kind: str) -> None:
    found = picture_of(image(kind, size=(800, 400)), preview=True)
    assert (found.size, found.problem) == ((800, 400), "")
    raster = found.raster
    assert raster is not None and (raster.width, raster.height) == (48, 24)
    assert near(raster.pixels[:4], RED) and near(raster.pixels[-4:], BLUE)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP"])
def test_for_a_terminal_that_draws_images_there_is_one_with_more_pixels_of_the_same_shape(kind: str) -> None:
    found = picture_of(image(kind, size=(1600, 800)), preview=True, fine=True)
    fine, small = found.fine, found.raster
    assert fine is not None and (fine.width, fine.height) == (384, 192)
    assert near(fine.pixels[:4], RED) and near(fine.pixels[-4:], BLUE)
    assert small is not None and (small.width, small.height) == (48, 24)


def test_of_an_animation_the_first_frame_is_shown() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in (RED, BLUE)]
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    raster = picture_of(file.getvalue(), preview=True).raster
    assert raster is not None and near(raster.pixels[:4], RED)


def test_a_photograph_is_turned_as_its_camera_says() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    raster = picture_of(image("JPEG", size=(80, 40), exif=exif), preview=True).raster
    assert raster is not None and (raster.width, raster.height) == (12, 24)


def test_a_file_that_goes_on_as_something_else_is_an_image() -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("page.html", "<script>alert(1)</script>")
    raster = picture_of(image("PNG") + archive.getvalue(), preview=True).raster
    assert raster is not None and near(raster.pixels[:4], RED)


def test_what_would_fill_memory_is_refused_by_its_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture, "run_isolated", lambda *_, **__: pytest.fail("nothing is to be decoded"))
    assert picture_of(png(60_000, 60_000), preview=True) == Picture(
        size=(60_000, 60_000), problem="too large to preview"
    )
    assert 4_000 * 3_000 < MAX_PIXELS < 60_000 * 1_000


HOSTILE = {
    "truncated": image("PNG", size=(400, 400))[:200],
    "truncated jpeg": image("JPEG")[:400],
    "compressed nothing": png(5_000, 5_000, chunk(b"IDAT", zlib.compress(b"\0" * 1_000))),
    "a text that unpacks to 300 MB": png(
        9,
        9,
        chunk(b"zTXt", b"a\0\0" + zlib.compress(b"\0" * 300_000_000, 9)),
        chunk(b"IDAT", zlib.compress(b"\0" * 300)),
    ),
    "another format behind the signature": png(9, 9)[:24] + b"%!PS-Adobe-3.0 EPSF-3.0\n",
}


@for_each("name", HOSTILE)
def test_a_hostile_file_has_no_preview_and_a_reason(name: str) -> None:
    found = picture_of(HOSTILE[name], preview=True)
    assert found.raster is None and found.problem == "cannot be decoded: it failed"


def test_an_image_that_is_larger_than_its_header_says_is_refused_too() -> None:
    assert picture_of(gif_with_a_larger_frame(), preview=True) == Picture(size=(10, 10), problem="too large to preview")


@for_each(
    "data", [b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"II*\0" + b"\0" * 60, b"BM" + b"\0" * 60, b"", b"%!PS"]
)
def test_other_kinds_of_images_are_not_decoded(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture, "run_isolated", lambda *_, **__: pytest.fail("nothing is to be decoded"))
    assert picture_of(data, preview=True) == Picture(size=None, problem="damaged")


def opened_after(data: str, place: str) -> list[str]:
    """Decode an image as the subprocess does, and return what this process can do then."""
    assert decode_image(data) is not None
    opened = []
    attempts: dict[str, Callable[[], object]] = {
        "read": lambda: open("/etc/passwd"),
        "write": lambda: open(place, "w"),
        "socket": lambda: socket.socket(),
        "pipe": lambda: os.pipe(),
        "program": lambda: subprocess.run(["/bin/true"], check=False),
    }
    for name, attempt in attempts.items():
        try:
            attempt()
        except OSError:
            continue
        opened.append(name)
    return opened


def test_who_decodes_can_open_nothing(tmp_path: Path) -> None:
    data = base64.b64encode(image("JPEG")).decode()
    assert run_isolated(opened_after, limits=Limits(), data=data, place=str(tmp_path / "x")) == []
    assert not (tmp_path / "x").exists()


@for_each(
    "answer",
    [
        [],
        {"width": 2, "height": 1, "pixels": "00" * 7},
        {"width": 2, "height": 1, "pixels": "zz" * 8},
        {"width": WIDTH + 1, "height": 1, "pixels": "00" * 4 * (WIDTH + 1)},
        {"width": 1, "height": HEIGHT + 1, "pixels": "00" * 4 * (HEIGHT + 1)},
        {"width": 0, "height": 0, "pixels": ""},
        {"width": "1", "height": 1, "pixels": "00" * 4},
    ],
)
def test_an_answer_of_another_shape_is_no_preview(answer: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture, "run_isolated", lambda *_, **__: {"small": answer, "fine": answer})
    assert picture_of(image("PNG"), preview=True) == Picture(size=(80, 40), problem="cannot be decoded")
    good = {"width": 1, "height": 1, "pixels": "01020304"}
    monkeypatch.setattr(picture, "run_isolated", lambda *_, **__: {"small": good, "fine": good})
    assert picture_of(image("PNG"), preview=True).raster == Raster(1, 1, b"\1\2\3\4")


def test_without_the_library_or_a_wish_only_the_size_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture, "run_isolated", lambda *_, **__: pytest.fail("nothing is to be decoded"))
    assert picture_of(image("PNG"), preview=False) == Picture(size=(80, 40))
    monkeypatch.setattr(picture, "find_spec", lambda name: None)
    assert picture_of(image("PNG"), preview=True) == Picture(size=(80, 40))
