"""A session that shows every kind of card, for pictures."""

from chatops.domain.decisions import Principal
from chatops.domain.endings import Ending, with_ending
from chatops.domain.ids import CallId, MessageId
from chatops.domain.messages import AssistantMessage, Message, RoleSwitchMessage, ToolMessage, UserMessage
from chatops.domain.tools import Outcome, ResultFacts, ResultSource, ToolCall
from tests.support.transcript_blocks import DIFF, EDIT
from tests.tui.app.fakes import ROUND, SESSION, TURN

ANSWER = """I read the module and the two tests that use it. `greet` prints one line, and both tests expect \
a second one, which says goodbye. So I change the function and leave the tests alone.

1. Change `greet`
2. Run the tests

```python
def main():
    greet("world")
```
"""


def _call(number: int, tool: str, arguments: str) -> ToolCall:
    return ToolCall(id=CallId(f"{ROUND}.{number}"), name=tool, arguments=arguments)


CALLS = (
    _call(1, "file_read", '{"path":"hello.py"}'),
    _call(2, "file_read", '{"path":"tests/test_hello.py"}'),
    _call(3, "file_read", '{"path":"README.md"}'),
    _call(4, "file_search", '{"pattern":"greet"}'),
    _call(5, "file_edit", str(EDIT["arguments"])),
    _call(6, "shell_exec", '{"command":"pytest -q"}'),
    _call(7, "shell_exec", '{"command":"git push"}'),
    _call(8, "look_up", '{"city":"Bern","days":3}'),
)
DENIED = ResultFacts(source=ResultSource.USER, reason="not yet")
ANA = str(Principal(uid=4242, login="ana", via="tui"))


def _result(call: ToolCall, content: str, outcome: Outcome = Outcome.SUCCESS, **more: object) -> ToolMessage:
    return ToolMessage(
        id=MessageId(f"{call.id}.m"),
        call_id=call.id,
        tool=call.name,
        arguments=call.arguments,
        outcome=outcome,
        content=content,
        **more,  # type: ignore[arg-type]
    )


def messages() -> tuple[Message, ...]:
    """Return the messages of a session that changes a file and runs its tests."""
    failed = Ending(exit_code=127, cause="the sandbox hides ~/.venv; the registry key sandbox.read shows it")
    tests = "\n".join([f"tests/test_{name}.py ....." for name in "abcdef"] + ["bash: pytest: command not found"])
    return (
        UserMessage(id=MessageId(f"{TURN}.m1"), text="fix the greeting in hello.py\nand run the tests"),
        AssistantMessage(id=MessageId(f"{TURN}.m2"), text=ANSWER, calls=CALLS),
        _result(CALLS[0], "x\n" * 212, facts=ResultFacts(count=212), duration_ms=4, decided_by="policy"),
        _result(CALLS[1], "x\n" * 140, facts=ResultFacts(count=140), duration_ms=3, decided_by="policy"),
        _result(CALLS[2], "x\n" * 60, facts=ResultFacts(count=60), duration_ms=2, decided_by="policy"),
        _result(
            CALLS[3],
            "hello.py:3: def greet\nhello.py:9: greet",
            duration_ms=12,
            decided_by="policy",
            facts=ResultFacts(count=2),
        ),
        _result(CALLS[4], "Done.", duration_ms=28, decided_by=ANA, facts=ResultFacts(diff=DIFF, added=2, removed=1)),
        _result(
            CALLS[5],
            with_ending(tests, failed),
            Outcome.FAILED,
            duration_ms=110,
            decided_by=ANA,
            facts=ResultFacts(ending=failed),
        ),
        _result(CALLS[6], "Denied.", Outcome.DENIED, decided_by=ANA, facts=DENIED),
        _result(CALLS[7], "sunny", duration_ms=1_900, decided_by="policy"),
        RoleSwitchMessage(
            id=MessageId(f"{SESSION}.r1"),
            before="coder",
            after="researcher",
            model="",
            added=("web_search",),
            removed=("shell_exec", "file_write"),
            suspended=1,
        ),
    )
