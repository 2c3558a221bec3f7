"""One conversation in two windows: one drives it, the other reads along, may decide, and may take it over."""

import os
import re
from collections.abc import Iterator

import pytest

from tests.e2e.installation import EFFECT, TITLE, ChatTerminal
from tests.faults.entry_points import FaultyChat, Pipe, Provider, flat
from tests.support.fake_openai import call, calls, says

pytestmark = pytest.mark.fault("E09")


@pytest.fixture
def second(chat: FaultyChat) -> Iterator[ChatTerminal]:
    """Another window on the conversation, in which a call waits."""
    ask(chat, EFFECT)
    chat.terminal.dialog()
    with chat.installation.open("-c") as terminal:
        terminal.wait_for("Open elsewhere")
        yield terminal


def ask(chat: FaultyChat, command: str) -> None:
    chat.say("write it down", calls(call("shell_exec", command=command)), says("Understood."))


def seen(terminal: ChatTerminal, pattern: str) -> str:
    found = re.compile(pattern)
    return terminal.wait_until(lambda text: found.search(flat(text)) is not None, what=f"{pattern!r}")


def well(chat: FaultyChat, terminal: ChatTerminal) -> None:
    """The next turn works in the window that has the conversation now."""
    FaultyChat(chat.installation, chat.provider, terminal).assert_well()


@pytest.mark.more
def test_the_second_reads_along_and_takes_over_with_the_call_that_waits(
    chat: FaultyChat, second: ChatTerminal, provider: Provider
) -> None:
    first = chat.terminal
    where = re.escape(f"(pid {first.pid} on {os.uname().nodename}, since ")
    seen(second, rf"Open elsewhere {where}\d\d:\d\d\): read-only here. F2 takes over. 1 approval pending")
    assert "Shell printf x" in flat(second.text())
    # It can send nothing, and keeps what was typed.
    second.say("and this")
    seen(second, r"The message was not sent: this session is open")
    second.wait_for(re.compile(r"^│? *and this *│?$", re.MULTILINE))
    # Neither can a program without a terminal, which is told what to do.
    pipe = Pipe(chat.installation, provider)
    for arguments in (("-p", "hello", "-c"), ("resume", chat.installation.session().id)):
        refused = pipe.run(*arguments)
        assert refused.code == 1
        assert re.search(rf"is open in another chatops .*pid {first.pid}, since \d\d:\d\d", flat(refused.err))
        assert f"close that chatops (pid {first.pid})" in flat(refused.err)
    first.press("escape")
    seen(first, "1 approval pending – ctrl.g")
    first.send("not yet sent")
    first.wait_until(lambda _: "not yet sent" in chat.installation.drafts(), what="the draft to be stored")
    second.press("f2")
    seen(first, rf"Taken over by another chatops .host \S+, pid {second.pid}")
    seen(first, f"Open elsewhere .pid {second.pid} on")
    assert "not yet sent" in first.text()
    second.wait_gone("Open elsewhere")
    # What was typed in each is in the one that goes on, and taken from neither.
    seen(second, "not yet sent.* and this")
    second.press("ctrl+c", "ctrl+g")
    second.dialog()
    second.press("a")
    second.wait_for("Understood.")
    first.wait_for("Understood.")
    assert chat.installation.count == 1
    # Whoever has it may die: it can be had at once.
    second.kill9()
    seen(first, "No longer open elsewhere")
    first.press("f2")
    first.wait_gone("No longer open elsewhere")
    first.press("ctrl+c")
    first.wait_gone("not yet sent")
    well(chat, first)
    assert [(row.attempt, row.outcome) for row in chat.installation.journal()] == []


@pytest.mark.more
def test_both_may_decide_and_the_one_that_comes_second_is_told_who_was_first(
    chat: FaultyChat, second: ChatTerminal, provider: Provider
) -> None:
    with chat.installation.store() as store:
        (waiting,) = store.pending_calls()
    second.press("ctrl+g")
    second.dialog()
    chat.terminal.wait_for(TITLE)
    second.press("d")
    second.wait_gone(TITLE)
    chat.terminal.wait_for("Understood.")
    seen(chat.terminal, r"Answered elsewhere: shell_exec was denied by uid \d+ .* via tui on .* at \d\d:\d\d:\d\d")
    chat.terminal.wait_gone(TITLE)
    second.wait_for("Understood.")
    late = Pipe(chat.installation, provider).run("approvals", "approve", waiting.pending.call.id)
    assert late.code == 1
    assert re.search(r"it was denied by uid \d+ .* via tui on .* at \d\d:\d\d:\d\d", flat(late.err))
    assert chat.installation.count == 0
    well(chat, chat.terminal)
    seen(second, "You said: still there")
