"""An editor made of the SDK's client, with the real ``chatops acp`` in a process of its own.

``python -m tests.acp.editing FOLDER PROMPT [SESSION]`` is the same editor as a program, for tests that kill it. It
prints one JSON object per line for each thing that it is shown.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import acp
from acp import schema

from tests.support.command_line import REPOSITORY
from tests.support.fake_openai import call, calls, says
from tests.support.waiting import PATIENCE

READS_FIRST_S = 0.7
"""Seconds that a user of these tests takes before allowing anything."""
CODING = [
    calls(call("file_read", path="app.py")),
    calls(call("file_edit", path="app.py", old="VALUE = 1", new="VALUE = 2")),
    calls(call("shell_exec", command="touch wrong.txt")),
    calls(call("shell_exec", command="touch right.txt")),
    says("The value is 2 now."),
    calls(call("shell_exec", command="touch after.txt")),
    says("Made it."),
    calls(call("file_read", path="app.py")),
    says("It says 2."),
]
"""What the model says in the coding session that each editor plays."""


class Editor:
    """What the agent shows and asks. Questions wait until `answer` takes them, or `decides` answers them by itself."""

    def __init__(self) -> None:
        self.shown: list[Any] = []
        self.asked: list[Any] = []
        self.forms: list[Any] = []
        self.decides: Callable[[Any, Sequence[Any]], Any] | None = None
        self.fills: Callable[[str, Any], dict[str, Any]] = lambda message, schema: {"action": "cancel"}
        self._changed = asyncio.Condition()
        self._answers: dict[str, asyncio.Future[Any]] = {}
        self.agent: Any = None
        self.process: Any = None

    # What the agent calls

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.shown.append(update)
        await self._notify(update)

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_: Any) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[tool_call.tool_call_id] = future
        self.asked.append((tool_call, options))
        if self.decides is not None:
            future.set_result(self.decides(tool_call, options))
        await self._notify({"asked": tool_call.title})
        return schema.RequestPermissionResponse(outcome=await future)

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Any:
        self.forms.append((message, mode))
        await self._notify({"form": message})
        return self.fills(message, mode)

    async def _misused(self, **_: Any) -> Any:
        raise AssertionError("the agent uses files or terminals of the editor")

    read_text_file = write_text_file = create_terminal = _misused

    async def _notify(self, update: Any) -> None:
        async with self._changed:
            self._changed.notify_all()

    # What the user does and sees

    def answer(self, kind: str, index: int = -1) -> None:
        """Choose the first option of a kind, for a question that waits."""
        _, options = self.asked[index]
        chosen = next(one.option_id for one in options if one.kind == kind)
        self.choose(schema.AllowedOutcome(outcome="selected", option_id=chosen), index)

    def choose(self, outcome: Any, index: int = -1) -> None:
        """Answer a question in any way."""
        self._answers[self.asked[index][0].tool_call_id].set_result(outcome)

    async def until(self, holds: Callable[[Self], object]) -> None:
        """Wait until something was shown or asked."""
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(lambda: holds(self))

    def of(self, kind: str) -> list[Any]:
        """What was shown of a kind."""
        return [one for one in self.shown if one.session_update == kind]

    @property
    def text(self) -> str:
        """Everything that the agent has said."""
        return "".join(one.content.text for one in self.of("agent_message_chunk"))

    @property
    def cards(self) -> list[Any]:
        """All that was shown of calls."""
        return [one for one in self.shown if one.session_update in ("tool_call", "tool_call_update")]

    def last(self, call: str) -> Any:
        """The last status of a call."""
        return [one for one in self.cards if one.tool_call_id == call][-1].status


@asynccontextmanager
async def editing(*arguments: str, forms: bool = False, env: dict[str, str] | None = None) -> AsyncIterator[Editor]:
    """An editor whose agent is initialized."""
    editor = Editor()
    command = ("-m", "chatops", *arguments, "acp")
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), **(env or {})}
    # The SDK ends an agent after two seconds, and fails if it has just ended by itself.
    limits = {"limit": 64 * 1024 * 1024, "stderr": asyncio.subprocess.PIPE, "shutdown_timeout": PATIENCE}
    async with acp.spawn_agent_process(
        editor,  # type: ignore[arg-type]
        sys.executable,
        *command,
        env=environment,
        transport_kwargs=limits,
        use_unstable_protocol=True,
    ) as (agent, process):
        editor.agent, editor.process = agent, process
        capabilities = schema.ClientCapabilities()
        if forms:
            capabilities.elicitation = schema.ElicitationCapabilities(form=schema.ElicitationFormCapabilities())
        await agent.initialize(
            acp.PROTOCOL_VERSION,
            client_capabilities=capabilities,
            client_info=schema.Implementation(name="test-editor", version="1.2"),
        )
        yield editor


def said(text: str) -> list[Any]:
    """A prompt."""
    return [schema.TextContentBlock(type="text", text=text)]


def prompted(editor: Editor, session: str, text: str) -> "asyncio.Task[Any]":
    """A prompt under way."""
    return asyncio.create_task(editor.agent.prompt(session, said(text)))


async def main(folder: str, prompt: str, session: str = "") -> None:
    """Send a prompt, and print what is shown until this is killed."""
    async with editing() as editor:

        async def show(update: Any) -> None:
            line = update if isinstance(update, dict) else update.model_dump(mode="json", by_alias=True)
            print(json.dumps(line), flush=True)

        editor._notify = show  # type: ignore[method-assign]
        begun = session or (await editor.agent.new_session(folder)).session_id
        print(json.dumps({"session": begun, "agent": editor.process.pid}), flush=True)
        if session:
            await editor.agent.load_session(folder, session)
        if prompt:
            await editor.agent.prompt(begun, said(prompt))
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(str(Path(sys.argv[1])), *sys.argv[2:]))
