"""A message sent while the session is being opened outlives a kill, and the screen says whether it does."""

import fcntl
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from chatops.domain.messages import UserMessage
from tests.e2e.installation import ChatTerminal, Installation, registry
from tests.support.fake_openai import FakeOpenAI, says


@contextmanager
def opening(installation: Installation) -> Iterator[tuple[ChatTerminal, Callable[[], None]]]:
    """A chat that waits for the folder of its store, which another program has locked, and what releases it."""
    data = installation.home / "data"
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = os.open(data, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    try:
        with installation.open() as terminal:
            terminal.wait_for("Message (Enter sends")
            yield terminal, lambda: fcntl.flock(folder, fcntl.LOCK_UN)
    finally:
        os.close(folder)


def unsent(installation: Installation) -> list[str]:
    return sorted(path.name for path in (installation.home / "data" / "unsent").glob("*"))


@pytest.mark.more
def test_what_was_sent_before_the_session_was_open_is_in_the_composer_after_a_kill(installation: Installation) -> None:
    with FakeOpenAI(lambda request: says(f"You said: {request.last_user}")) as server:
        with opening(installation) as (terminal, _):
            terminal.say("first")
            terminal.wait_for("❯ first")
            terminal.say("second")
            terminal.wait_for("Stored. Sent as soon as the session is open:\n ❯ first\n ❯ second")
            with installation.open() as other:
                other.wait_for("Message (Enter sends")
                assert len(unsent(installation)) == 1, "what belongs to a live process is left alone"
            terminal.kill9()
        installation.use(registry(server.url))
        with installation.open() as terminal:
            terminal.ready("assistant")
            terminal.wait_for(re.compile(r"^│ first +│\n│ +│\n│ second +│$", re.MULTILINE))
            assert not server.requests, "nothing is sent before the user has seen it"
            terminal.press("enter")
            terminal.wait_for("You said: first")
            assert unsent(installation) == []
        with installation.open() as terminal:
            terminal.ready("assistant")
            assert "second" not in terminal.text()
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    "seen",
    [
        b"",
        pytest.param(b"\x1b[?1049h", marks=pytest.mark.more),
        pytest.param(b"Enter sends", marks=pytest.mark.more),
    ],
    ids=["at once", "with the terminal", "with the message field"],
)
def test_what_is_typed_while_the_program_starts_is_sent_by_enter(installation: Installation, seen: bytes) -> None:
    def typed(*arguments: str, text: str) -> ChatTerminal:
        terminal = installation.open(*arguments)
        terminal.wait_until(lambda _: seen in terminal.raw, what="the program to get so far")
        terminal.say(text)
        return terminal

    with typed(text="read note.txt") as terminal:
        terminal.wait_for("The invoice is due on Friday.")
    with typed("-r", installation.session().id, text="list .") as terminal:
        terminal.wait_for("file_list gave:")
    with typed("-r", text="") as terminal:
        # The picker, which opens later, gets the key. Nobody has seen its rows by then.
        terminal.wait_for("Sessions")
        terminal.press("enter")
        terminal.wait_for("file_list gave:")


@pytest.mark.more
def test_several_lines_before_the_start_are_a_paste_and_not_sent(installation: Installation) -> None:
    """No terminal marks a paste before it is asked to."""
    with installation.open(env={"TMUX": "/nowhere,1,0"}) as terminal:
        terminal.send("Read this:\n!touch PWNED\n")
        terminal.wait_for(re.compile(r"Read this: +│\n│ +!touch PWNED"))
        terminal.ready("assistant")
        terminal.wait_quiet(0.5)
        assert "!touch PWNED" in terminal.text()
    assert not (installation.workspace / "PWNED").exists()


@pytest.mark.more
def test_keys_for_a_picker_that_has_nothing_to_offer_are_a_message(installation: Installation) -> None:
    with installation.open("-r") as terminal:
        terminal.say("list .")
        terminal.wait_for("file_list gave:")


def test_what_is_sent_during_a_slow_start_is_sent_in_order_and_once(installation: Installation) -> None:
    def said() -> list[str]:
        with installation.store() as store:
            return [
                message.text
                for info in store.sessions()
                for message in store.history(info.id)
                if isinstance(message, UserMessage)
            ]

    with opening(installation) as (terminal, release):
        terminal.say("first")
        terminal.wait_for("❯ first")
        terminal.say("second")
        terminal.wait_for("❯ first\n ❯ second")
        release()
        terminal.wait_until(lambda _: not unsent(installation), what="the file to go")
        terminal.wait_until(lambda _: len(said()) == 2, what="both to be sent")
        assert said() == ["first", "second"]


def test_where_nothing_can_be_stored_it_is_said(installation: Installation) -> None:
    (installation.home / "data").mkdir(mode=0o700, parents=True)
    (installation.home / "data" / "unsent").write_text("a file in the way of the folder")
    with opening(installation) as (terminal, _):
        terminal.say("first")
        terminal.wait_for("Not stored yet. Sent as soon as the session is open:\n ❯ first")
