"""On a terminal that shows images, an image is cells like any others: scrolled, cut, covered, and gone in the end."""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.installation import APPROVE, EFFECT, ChatTerminal, Installation, registry
from tests.support.fake_openai import FakeOpenAI, Reply, call, calls, says

Image = pytest.importorskip("PIL.Image")
RED, BLUE = (200, 30, 20), (10, 40, 190)
FILLER = "\n\n".join(f"line {number}" for number in range(60))


@contextmanager
def shown(installation: Installation, *replies: Reply, cols: int = 110) -> Iterator[ChatTerminal]:
    """A chat in which a message brought an image, whose left half is red and whose right half is blue."""
    made = Image.new("RGB", (800, 400), RED)
    made.paste(BLUE, (400, 0, 800, 400))
    file = io.BytesIO()
    made.save(file, "PNG")
    (installation.workspace / "plot.png").write_bytes(file.getvalue())
    with FakeOpenAI([says("A plot."), *replies]) as server:
        installation.use(registry(server.url))
        with installation.open("--role", "coder", cols=cols, kitty=True) as chat:
            chat.wait_for("sandbox")
            chat.send("look at @plot.png \r")
            chat.wait_for("Not sent yet: Local does not see images")
            chat.press("enter")
            chat.wait_for("A plot.")
            yield chat


def seen(chat: ChatTerminal, what: str = "the image") -> dict[tuple[int, int], tuple[int, int, int]]:
    chat.wait_until(lambda _: bool(chat.pictured()), what=f"{what} to be seen")
    chat.wait_quiet(0.5)
    return chat.pictured()


def test_an_image_is_sent_once_and_seen_in_its_cells_whatever_the_window_does(installation: Installation) -> None:
    with shown(installation, says(FILLER), says("Once more.")) as chat:
        whole = seen(chat)
        ((number, image),) = chat.images().items()
        assert image.size == (384, 192) and image.cells == (48, 12)
        assert image.pixels[:4] == bytes((*RED, 255)) and image.pixels[-4:] == bytes((*BLUE, 255))
        assert {part[0] for part in whole.values()} == {number}
        assert sorted(part[1:] for part in whole.values()) == [
            (row, column) for row in range(12) for column in range(48)
        ]
        assert "▀" not in chat.text()

        chat.resize(cols=90, rows=20)
        seen(chat)
        chat.resize(cols=40, rows=36)
        chat.wait_for("▀")
        assert not chat.pictured(), "half blocks where there is no room for all of it"
        chat.resize(cols=110, rows=36)
        assert len(seen(chat)) == 48 * 12

        chat.send("more\r")
        chat.wait_for("line 59")
        chat.wait_until(lambda _: not chat.pictured(), what="the image to be scrolled away")
        for _ in range(12):
            chat.press("pageup")
            if chat.pictured():
                break
            chat.wait_quiet(0.3)
        assert seen(chat)
        assert len(chat.images()) == 1 and chat.raw.count(b"a=T,U=1") == 1


def test_a_dialog_covers_it_and_no_answer_of_the_terminal_is_typed(installation: Installation) -> None:
    with shown(installation, calls(call("shell_exec", command=EFFECT)), says("Done.")) as chat:
        seen(chat)
        chat.send("go on\r")
        chat.dialog()
        assert not chat.pictured(), "neither in the dialog nor beside it"
        # What kitty answers to who asks for it; none of the letters decides.
        chat.send("\x1b_Gi=1;OK\x1b\\\x1b_Gi=31,I=3;ENOENT:a\x1b\\\x1bP>|kitty(0.35.2)\x1b\\")
        chat.wait_quiet(0.8)
        assert APPROVE in chat.dialog() and not installation.count
        chat.press("escape")
        seen(chat, "the image under the closed dialog")
        assert "OK" not in chat.text() and "kitty" not in chat.text()


def test_the_terminal_keeps_no_image_of_a_session_that_is_left_or_of_an_app_that_has_ended(
    installation: Installation,
) -> None:
    with shown(installation) as chat:
        seen(chat)
        (number,) = chat.images()
        # There is no shell to stop it for, so that it takes the terminal again at once.
        chat.press("ctrl+z")
        sent, deleted = b"i=%d,s=384" % number, b"a=d,d=I,i=%d," % number
        chat.wait_until(lambda _: chat.raw.count(sent) == 2, what="the image to be sent again")
        assert chat.raw.index(deleted) < chat.raw.rindex(sent)
        assert len(seen(chat, "the image after fg")) == 48 * 12
        chat.say("/new")
        chat.wait_until(lambda _: not chat.images(), what="the images of the other session to be deleted")
    with installation.open("-c", kitty=True) as chat:
        seen(chat, "the image of the session that was resumed")
        chat.press("ctrl+d")
        assert chat.wait_exit() == 0 and not chat.images() and not chat.left_on()


def test_a_terminal_that_is_no_kitty_is_sent_half_blocks(installation: Installation) -> None:
    with shown(installation) as chat:
        seen(chat)
    with installation.open("-c") as chat:
        chat.wait_for("▀")
        assert b"\x1b_G" not in chat.raw and "\U0010eeee" not in chat.text()


def test_no_text_of_a_model_or_a_tool_can_name_an_image(installation: Installation) -> None:
    forged = "\U0010eeee\u0305\u0305"
    (installation.workspace / "forged.txt").write_text(f"file {forged}\n\x1b_Ga=d,d=A\x1b\\\x1b_Ga=q,i=5;AAAA\x1b\\")
    script: list[Reply] = [
        calls(call("file_read", path="forged.txt")),
        says(f"model {forged} \x1b_Ga=q,i=7;AAAA\x1b\\"),
    ]
    with shown(installation, *script) as chat:
        before = seen(chat)
        chat.send("read\r")
        chat.wait_for("model <U+10EEEE>")
        sequences = re.findall(rb"\x1b_G([^;\x1b]*)", chat.raw)
        ours = (b"i=1,s=1,v=1,a=q,", b"a=T,U=1,t=d,", b"q=2,m=")
        assert all(keys.startswith(ours) for keys in sequences), sequences
        assert {part[0] for part in seen(chat).values()} == {part[0] for part in before.values()}
