"""The image on the clipboard: asked for only if there is one, from programs that get little time, room and no keys."""

from pathlib import Path

import pytest

from chatops.domain.errors import ChatopsError
from chatops.tools import clipboard
from chatops.tools.clipboard import image_on_clipboard

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x02\0\0\0\x03"


class Desktop:
    """A folder of programs that give what a test has put on the clipboard, and write down how they were called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {"PATH": str(folder), "WAYLAND_DISPLAY": "wayland-1", "OPENAI_API_KEY": "sk-canary"}
        folder.mkdir()

    def program(self, name: str, *, types: str = "", data: bytes = b"", script: str = "") -> None:
        (self.folder / f"{name}.types").write_text(types)
        (self.folder / f"{name}.data").write_bytes(data)
        lines = [
            "#!/bin/sh",
            "PATH=/usr/bin:/bin",
            'echo "$* $OPENAI_API_KEY $WAYLAND_DISPLAY" >>"$0.log"',
            script or 'case "$*" in *list-types*|*TARGETS*) cat "$0.types";; *) cat "$0.data";; esac',
        ]
        (self.folder / name).write_text("\n".join(lines) + "\n")
        (self.folder / name).chmod(0o755)

    def runs(self, name: str) -> bool:
        """Return True if the process that has written its id still runs."""
        pid = self.folder / f"{name}.pid"
        return pid.exists() and Path(f"/proc/{pid.read_text().strip()}").exists()

    def calls(self, name: str) -> list[str]:
        log = self.folder / f"{name}.log"
        return [line.strip() for line in log.read_text().splitlines()] if log.exists() else []


@pytest.fixture
def desktop(tmp_path: Path) -> Desktop:
    return Desktop(tmp_path / "bin")


async def test_an_image_is_read_in_the_first_type_that_models_take(desktop: Desktop) -> None:
    desktop.program("wl-paste", types="text/html\nimage/bmp\nimage/jpeg\nimage/png\n", data=PNG)
    assert await image_on_clipboard(desktop.environ) == PNG
    assert desktop.calls("wl-paste") == ["--list-types  wayland-1", "--no-newline --type image/png  wayland-1"], (
        "no key"
    )


async def test_x11_and_macos_have_programs_of_their_own(desktop: Desktop) -> None:
    environ = {"PATH": str(desktop.folder), "DISPLAY": ":0"}
    desktop.program("pngpaste", data=PNG)
    assert await image_on_clipboard(environ) == PNG
    desktop.program("wl-paste", types="image/png", data=b"")
    desktop.program("xclip", types="TARGETS\nimage/gif\n", data=b"GIF89a\1\0\1\0")
    assert await image_on_clipboard(environ) == b"GIF89a\1\0\1\0"
    assert not desktop.calls("wl-paste"), "there is no Wayland"
    assert desktop.calls("xclip")[1].startswith("-selection clipboard -o -t image/gif")


@pytest.mark.parametrize(
    "types", ["text/plain;charset=utf-8\nUTF8_STRING\n", "", "image/svg+xml\n", "application/x-image/png"]
)
async def test_nothing_is_read_if_there_is_no_image(desktop: Desktop, types: str) -> None:
    desktop.program("wl-paste", types=types, data=PNG)
    with pytest.raises(ChatopsError, match="no image on the clipboard"):
        await image_on_clipboard(desktop.environ)
    assert len(desktop.calls("wl-paste")) == 1


@pytest.mark.parametrize(
    ("data", "script", "problem"),
    [
        (b"<svg/>", "", "no image"),
        (b"", "", "no image"),
        (PNG, 'case "$*" in *list*) echo image/png;; *) cat "$0.data"; exit 1;; esac', "no image"),
        (PNG, 'case "$*" in *list*) echo image/png;; *) exec cat /dev/zero;; esac', "gave more than 10,485,760 bytes"),
        (PNG, "exec yes", "gave more than 65,536 bytes"),
    ],
)
async def test_what_a_program_gives_is_bounded_and_looked_at(
    desktop: Desktop, data: bytes, script: str, problem: str
) -> None:
    desktop.program("wl-paste", types="image/png", data=data, script=script)
    with pytest.raises(ChatopsError, match=problem):
        await image_on_clipboard(desktop.environ)


async def test_a_program_that_does_not_answer_is_stopped(desktop: Desktop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clipboard, "_TIMEOUT_S", 0.2)
    desktop.program("wl-paste", script='echo $$ >"$0.pid"; exec sleep 600')
    with pytest.raises(ChatopsError, match=r"wl-paste did not answer in 0\.2 s"):
        await image_on_clipboard(desktop.environ)
    assert not desktop.runs("wl-paste")


async def test_a_program_of_the_workspace_is_not_used(
    desktop: Desktop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    desktop.program("wl-paste", types="image/png", data=PNG)
    with pytest.raises(ChatopsError, match="Nothing here can read") as caught:
        await image_on_clipboard({**desktop.environ, "PATH": "bin"})
    assert "wl-clipboard" in caught.value.advice
    assert not desktop.calls("wl-paste")
