"""Of which calls one plain line says everything."""

from dataclasses import replace

from chatops.acp.offer import LONGEST_LINE, is_plain, offer_line
from chatops.acp.show import code_block, diffs, inert
from chatops.domain.events import AskReason, Denial, PendingCall
from chatops.domain.ids import CallId
from chatops.domain.sandbox import Lack, SandboxSpec
from chatops.domain.tools import (
    BUDGET_EXTEND,
    BUILT_IN_TOOLS,
    CallFacts,
    Capabilities,
    Interruption,
    ServerFacts,
    ToolCall,
)
from tests.support.cases import for_each

PLAIN = ["Shell: git status", "Shell: ls -la src/app.py", "Shell: grep -n naïve a_b.txt", "Shell: touch a.txt, b.txt"]
CHANGED = [
    "Shell: rm *.py *.txt",
    "Shell: cat __init__.py",
    "Shell: echo `id`",
    "Shell: ![x](http://evil)",
    "Shell: echo <b>hi</b>",
    "Shell: echo &amp;",
    "Shell: echo \\*",
    "Shell: a ~~b~~",
    "Shell: echo $x$ + $y$",
    "Shell: true || rm x",
    "Shell: say :smile:",
    "Shell: a  b",
    " Shell: a",
    "Shell: a\nb",
    "Shell: a\tb",
    "Shell: a\u202eb",
    "Shell: a\u200bb",
    "Shell: cat \u05d0\u05d1",
    "Shell: cat p\u0430ypal",
    "Shell: a\u00a0b",
    "# Shell",
    "- Shell",
    "1. Shell",
    "> Shell",
    "",
]


def waiting(command: str = "git status", tool: str = "shell_exec", **changes: object) -> PendingCall:
    """A command in a sandbox that waits."""
    facts = CallFacts(
        arguments=f'{{"command":"{command}"}}',
        command=command,
        cwd="/w",
        workspace="/w",
        sandbox="bwrap",
        sandboxed=True,
    )
    given: dict[str, object] = {
        "call": ToolCall(id=CallId("s.1.1.1"), name=tool, arguments=facts.arguments),
        "facts": facts,
        "digest": "d" * 64,
        "reason": AskReason.POLICY,
        "why": "tool default",
        "role": "coder",
        "model": "m",
        "said": "",
        "known": BUILT_IN_TOOLS.get(tool),
    }
    return PendingCall(**{**given, **changes})  # type: ignore[arg-type]


@for_each("line", PLAIN)
def test_a_line_that_is_drawn_as_it_is(line: str) -> None:
    assert is_plain(line) and inert(line) == line


@for_each("line", CHANGED)
def test_a_line_that_would_be_drawn_otherwise(line: str) -> None:
    assert not is_plain(line)
    assert inert(line) == code_block(line)


def test_a_plain_command_is_offered_with_all_that_it_does() -> None:
    assert offer_line(waiting()) == "Shell: git status"
    assert offer_line(waiting(caller="lead")) == "Shell: git status (asked by coder, for lead)"


def test_what_has_a_caution_or_more_to_say_is_not_offered() -> None:
    facts = waiting().facts
    length = LONGEST_LINE - len("Shell: ")
    assert offer_line(waiting("x" * length)) and not offer_line(waiting("x" * (length + 1)))
    for pending in (
        waiting("rm -r src"),
        waiting("curl example.org"),
        waiting(facts=replace(facts, sandboxed=False)),
        waiting(facts=replace(facts, repairs=("a brace was added",))),
        waiting(facts=replace(facts, caution="look")),
        waiting(facts=replace(facts, needs_user="only you")),
        waiting(facts=replace(facts, lacks=(Lack(by="git", needs=SandboxSpec(network=True)),))),
        waiting(facts=replace(facts, diff="--- a\n+++ b\n@@ -1 +1 @@\n-a\n+b\n", paths=("/w/a",))),
        waiting(reason=AskReason.CHANGED),
        waiting(reason=AskReason.OUTCOME_UNKNOWN),
        waiting(interruption=Interruption(call_id=CallId("s.1.1.1"), attempt=1)),
        waiting(denial=Denial(role="reader", by="role reader")),
        waiting(tool=BUDGET_EXTEND, reason=AskReason.BUDGET),
    ):
        assert offer_line(pending) == "", pending


@for_each(
    "command",
    ["sh \u0430", "python \u0441.py", "make \u2212n", "cat d\u0131r", "cat \u13aa", "cat e\u0301", "cat \uff0fa"],
)
def test_what_looks_like_another_command_is_not_offered(command: str) -> None:
    assert not offer_line(waiting(command))
    assert offer_line(waiting("cat na\u00efve.txt"))


def test_a_tool_of_a_server_is_named_as_it_is_called_and_not_by_its_title() -> None:
    server = ServerFacts(name="notes", origin="npx notes", tool="delete_all", description="")
    facts = replace(waiting().facts, arguments='{"id": 3}', command="", cwd="", server=server)
    titled = Capabilities(verb="notes: Read one note")
    assert offer_line(waiting(tool="notes__delete_all", facts=facts, known=titled)) == "notes__delete_all: id: 3"


def test_a_diff_is_shown_place_by_place_and_code_ends_where_it_ends() -> None:
    unified = (
        "--- a\n+++ b\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n@@ -9 +9,2 @@\n nine\n+--- ten\n\\ No newline at end of file\n"
    )
    first, second = diffs(unified, "/w/a")
    assert (first.old, first.new) == ("one\ntwo\n", "one\n2\n")
    assert (second.old, second.new) == ("nine\n", "nine\n--- ten\n")
    assert code_block("a```b") == "````\na```b\n````"
