"""No call starts before its intent is on disk, and its result is on disk before it is published (T8, T9).

A store that refuses a step shows the order of things: were a tool started, or a model asked, before the step that says
so is stored, it would come about all the same.
"""

from collections.abc import Callable

import pytest

from chatops.api import Step as WorkflowStep
from chatops.api import Workflow, tool
from chatops.domain.errors import ChatopsError, StoreError
from chatops.domain.tools import Outcome
from chatops.engine.effects import RunTool, TurnStep
from chatops.store.base import JournalRow
from chatops.store.process_identity import this_process
from chatops.store.store import Store
from chatops.toolkit.base import ToolContext
from tests.e2e.installation import Installation
from tests.faults.entry_points import Provider, patient_registry
from tests.support.command_line import CommandLine
from tests.support.fake_openai import Reply, SeenRequest, call, calls, says

COPIES = "dd if=mark.txt of=count.txt oflag=append conv=notrunc status=none"
SHELL = call("shell_exec", command=COPIES)
WRITES = call("file_write", path="count.txt", content="x")
NOTES = call("note", text="x")
DONE = says('{"success": true, "result": "done", "reasoning": "done"}')


class Table:
    """A workspace, a strict server, and the program in this process, whose store refuses the steps that `refused` is
    true of."""

    def __init__(self, installation: Installation, provider: Provider, line: CommandLine) -> None:
        self.installation = installation
        self.provider = provider
        self.refused: Callable[[TurnStep], bool] = lambda step: False
        self._line = line
        registry = patient_registry(provider.server.url)
        registry["roles"]["coder"]["tools"] = ["file_read", "file_write", "shell_exec"]
        self._file = installation.use(registry)
        (installation.workspace / "mark.txt").write_text("x")

    def chat(self) -> None:
        """A turn whose call a rule answers."""
        self.provider.script(calls(SHELL))
        self.ask()

    def ask(self) -> None:
        """The turn itself."""
        self._line(*self.installation.flags, "-p", "write it down", "--approve", f"shell_exec:{COPIES}")

    def resumed(self) -> None:
        """A turn whose call a user approves elsewhere."""
        self.provider.script(calls(WRITES))
        paused = self._line(*self.installation.flags, "-p", "write it down", "--output-format", "json")
        assert paused.code == 3, paused.err
        assert self._line(*self.installation.flags, "approvals", "approve", paused.json["pending"][0]["id"]).code == 0
        self.resume(paused.json["session_id"])

    def resume(self, session: str) -> None:
        """Go on with a turn."""
        self._line(*self.installation.flags, "resume", session)

    def program(self) -> None:
        """A run that a Python program has begun, with a tool of its own."""
        count = self.installation.workspace / "count.txt"

        @tool
        def note(text: str, context: ToolContext) -> str:
            """Write something down."""
            assert [(row.call_id, row.outcome) for row in self.journal()] == [(context.call_id, None)]
            count.write_text(text)
            return "noted"

        self.provider.script(calls(NOTES), DONE)
        self._run(WorkflowStep(name="write", system_prompt="Write it down.", tools=[note]))

    def gate(self) -> None:
        """The command that an answer has to pass."""
        self.provider.script(DONE)
        gate = {"name": "copies", "command": COPIES}
        self._run(WorkflowStep(name="say", system_prompt="Say so.", tools=[], gates=[gate]))

    def _run(self, step: WorkflowStep) -> None:
        try:
            Workflow("notes", [step]).run(
                "go",
                model="local",
                registry=self._file,
                workspace=self.installation.workspace,
                on_approval=lambda pending: True,
            )
        except ChatopsError as error:
            assert "full" in str(error)

    def journal(self) -> list[JournalRow]:
        """Every attempt in the last turn of every session."""
        with self.installation.store() as store:
            turns = [info.last_turn for info in store.sessions() if info.last_turn is not None]
            return [row for turn in turns for row in store.journal(turn)]


@pytest.fixture
def table(
    installation: Installation, provider: Provider, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Table:
    """A table whose store refuses nothing yet."""
    monkeypatch.chdir(installation.workspace)
    laid = Table(installation, provider, CommandLine(installation.workspace, capsys))
    commit = Store.commit

    def refuse(self: Store, step: TurnStep, lease: str) -> None:
        if laid.refused(step):
            raise StoreError("The disk is full.")
        commit(self, step, lease)

    monkeypatch.setattr(Store, "commit", refuse)
    return laid


WAYS = [Table.chat, Table.resumed, Table.program, Table.gate]


def begins(step: TurnStep) -> bool:
    """Return True if the step starts a tool that may change something."""
    return any(isinstance(effect, RunTool) for effect in step.effects)


def ends(step: TurnStep) -> bool:
    """Return True if the event tells the result of a call."""
    return bool(step.results)


@pytest.mark.some(1)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_a_tool_comes_to_it(way: Callable[[Table], None], table: Table) -> None:
    """Else the tests below would show nothing."""
    way(table)
    assert table.installation.count == 1
    (row,) = table.journal()
    assert row.outcome is Outcome.SUCCESS
    here = this_process()
    assert (row.boot_id, row.pid, row.pid_started) == (here.boot_id, here.pid, here.pid_started)


@pytest.mark.parametrize("way", WAYS)
def test_no_tool_runs_whose_start_cannot_be_stored(way: Callable[[Table], None], table: Table) -> None:
    table.refused = begins
    way(table)
    assert table.installation.count == 0
    assert table.journal() == []


@pytest.mark.parametrize("way", WAYS)
def test_no_model_hears_of_a_result_that_cannot_be_stored(way: Callable[[Table], None], table: Table) -> None:
    table.refused = ends
    way(table)
    assert table.installation.count == 1
    assert [row.outcome for row in table.journal()] == [None]
    assert not any(request.tool_results for request in table.provider.requests)
    assert len(table.provider.requests) == 1


def test_whenever_a_model_is_asked_the_journal_has_all_that_it_is_told(table: Table) -> None:
    behind: list[Outcome | None] = []

    def looks(request: SeenRequest) -> Reply:
        behind.extend(row.outcome for row in table.journal())
        done = len(request.tool_results)
        return calls(SHELL, call("file_read", path="note.txt")) if done < 4 else says("Written down.")

    table.provider.script(looks, looks, looks)
    table.ask()
    assert behind == [Outcome.SUCCESS] * 6
    assert table.provider.server.violations == []


def test_what_could_not_be_begun_is_begun_once_when_there_is_room_again(table: Table) -> None:
    table.refused = begins
    table.resumed()
    assert table.installation.count == 0
    table.refused = lambda step: False
    table.resume(table.installation.session().id)
    assert table.installation.count == 1
    assert [(row.attempt, row.outcome) for row in table.journal()] == [(1, Outcome.SUCCESS)]
