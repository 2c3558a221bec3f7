"""The demo model at the steps of workflows: what it recognises them by, what it does, and what it owns up to."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from chatops.config.workflow_files import packaged_workflows
from chatops.config.workflow_read import read_workflow
from chatops.demo.scenes import DemoReply, cannot_play, play
from chatops.domain.canonical import canonical
from chatops.domain.ids import SessionId, TurnId
from chatops.domain.tools import Outcome
from chatops.engine import feedback
from chatops.engine.contract import DoneCall
from chatops.engine.workflow import texts
from chatops.engine.workflow.state import RunningStep, StepOutput, WorkflowState
from chatops.engine.workflow.texts import step_prompt
from chatops.policy.workflow import CommandGate, StepSpec, WorkflowSpec
from tests.support.cases import for_each

FILES = sorted(packaged_workflows().glob("*.yaml"))
SPECS = {file.stem: read_workflow(file.read_bytes(), source=str(file)).spec for file in FILES}
STEPS = [(name, step.name) for name, spec in SPECS.items() for step in spec.steps]
ROLE_TOOLS = ("web_search", "web_fetch", "file_read", "file_list", "file_search", "scratch_write")
"""The tools of a step that lists none."""


class Stage:
    """An attempt at a step, and the requests that a real run would make for it."""

    def __init__(self, workflow: str, step: str, request: str, **outputs: Any) -> None:
        self.spec = SPECS[workflow]
        self.step = next(one for one in self.spec.steps if one.name == step)
        place = self.spec.steps.index(self.step)
        names = [one.name for one in self.spec.steps]
        self.state = WorkflowState(
            session_id=SessionId("s"),
            seq=1,
            spec=self.spec,
            query=request,
            role="assistant",
            phase=RunningStep(step=place, attempt=1, turn_id=TurnId("s.1")),
            outputs=tuple(StepOutput(step=names.index(name), text=canonical(value)) for name, value in outputs.items()),
        )
        self.tools = list(self.step.tools if self.step.tools is not None else ROLE_TOOLS)
        self.messages: list[dict[str, Any]] = []
        self._open(1)

    def _open(self, attempt: int) -> None:
        opening = texts.opening_message(
            self.state, step=self.spec.steps.index(self.step), attempt=attempt, retaken=False
        )
        self.messages.append({"role": "user", "content": opening})

    def again(self, told: str, *, attempt: int = 2, done: Sequence[DoneCall] = ()) -> None:
        """The next attempt."""
        self.state = replace(self.state, told=told, done=tuple(done))
        self._open(attempt)

    def body(self, **more: Any) -> dict[str, Any]:
        system = f"Base.\n\n{step_prompt(self.spec, self.step)}\n\n--- Role Context ---\nAppend."
        tools = [{"type": "function", "function": {"name": name}} for name in self.tools]
        return {"messages": [{"role": "system", "content": system}, *self.messages], "tools": tools, **more}

    def next(self) -> DemoReply:
        """Return the demo's next reply. It depends on the request alone, so asking twice changes nothing."""
        first, second = play(self.body()), play(json.loads(json.dumps(self.body())))
        assert first is not None and first == second
        return first

    def asked(self, *results: str) -> list[tuple[str, dict[str, Any]]]:
        """The calls that the demo makes now, which get these results, or the last one each."""
        calls = self.next().calls
        assert calls, self.next().text
        sent, answers = [], []
        for number, call in enumerate(calls):
            key = f"c{len(self.messages)}.{number}"
            function = {"name": call.tool, "arguments": json.dumps(dict(call.arguments))}
            sent.append({"id": key, "type": "function", "function": function})
            content = results[min(number, len(results) - 1)]
            answers.append({"role": "tool", "tool_call_id": key, "content": content})
        self.messages += [{"role": "assistant", "content": "", "tool_calls": sent}, *answers]
        return [(call.tool, dict(call.arguments)) for call in calls]

    def answer(self) -> dict[str, Any]:
        """The demo's final answer, which is an envelope and says whose it is."""
        said = self.next()
        assert not said.calls, said.calls
        value: dict[str, Any] = json.loads(said.text)
        assert set(value) == {"success", "result", "reasoning"} and value["reasoning"].startswith("(demo) ")
        return value

    def gives_up(self, *words: str) -> None:
        value = self.answer()
        assert value["success"] is False and value["result"] is None
        assert all(word in value["reasoning"] for word in words), value


# where it is


@for_each(("workflow", "step"), STEPS)
def test_each_step_of_each_workflow_that_comes_with_chatops_is_known(workflow: str, step: str) -> None:
    stage = Stage(workflow, step, "replace a with b in c.txt")
    assert "built-in demo and no language model" not in stage.next().text


@pytest.mark.parametrize("names", [("mine", "read"), ("research", "other"), ("Research", "read")])
def test_of_any_other_step_it_says_that_it_cannot(names: tuple[str, str]) -> None:
    step = StepSpec(name=names[1], system_prompt="Do it.")
    system = step_prompt(WorkflowSpec(name=names[0], steps=(step,)), step)
    opening = {"role": "user", "content": "The request:\nread a.txt\n\nThis is step 1 of 1: x."}
    said = play({"messages": [{"role": "system", "content": system}, opening], "tools": []})
    assert said is not None and not said.calls
    value = json.loads(said.text)
    assert value["success"] is False
    assert "code-change, research" in value["reasoning"] and "chatops connect" in value["reasoning"]


def test_a_chat_is_no_step_whatever_a_user_says_in_it() -> None:
    prompt = step_prompt(SPECS["research"], SPECS["research"].steps[0])
    assert play({"messages": [{"role": "system", "content": "Base."}, {"role": "user", "content": prompt}]}) is None
    assert play({"messages": []}) is None


def test_a_tool_that_is_not_on_offer_is_named() -> None:
    stage = Stage("research", "search", "invoice")
    stage.tools = ["file_list"]
    stage.gives_up("file_search", "does not have here")


def test_without_calls_left_it_does_not_call() -> None:
    stage = Stage("research", "search", "invoice")
    said = play(stage.body(tool_choice="none"))
    assert said is not None and not said.calls and '"success": false' in said.text


# code-change

EDIT = 'replace "Helo" with "Hello" in greet.py'
ARGUMENTS = {"old": "Helo", "new": "Hello", "path": "greet.py"}


def test_of_changes_it_understands_one_form() -> None:
    for step in ("read", "edit"):
        Stage("code-change", step, "make it faster").gives_up("replace")


def test_it_reads_before_it_plans_and_owns_up_to_a_file_that_is_not_there() -> None:
    stage = Stage("code-change", "read", EDIT)
    assert stage.asked("found") == [("file_search", {"pattern": "Helo"}), ("file_read", {"path": "greet.py"})]
    assert stage.answer()["result"]["files"] == ["greet.py"]
    missing = Stage("code-change", "read", EDIT)
    missing.asked("found", "file_read was not run: its arguments are not valid.\n- path: there is no such file")
    missing.gives_up("there is no such file")


def test_it_edits_too_early_then_reads_then_edits() -> None:
    stage = Stage("code-change", "edit", EDIT)
    assert stage.asked("Not run: file_edit comes after file_read.") == [("file_edit", ARGUMENTS)]
    assert stage.asked("text") == [("file_read", {"path": "greet.py"})]
    assert stage.asked("Wrote greet.py.") == [("file_edit", ARGUMENTS)]
    assert stage.answer()["result"]["changed"] == ["greet.py"]


def test_a_denied_edit_is_not_asked_for_again() -> None:
    stage = Stage("code-change", "edit", EDIT)
    stage.asked("Not run: file_edit comes after file_read.")
    stage.asked("text")
    stage.asked(feedback.denied_text("no"))
    stage.gives_up("the edit was not made", "no")
    stage.again(texts.failure_text(stage.state, "(demo) the edit was not made: Denied"))
    stage.gives_up("do not ask")


def test_after_tests_that_fail_it_waits_for_a_user_and_does_not_edit_twice() -> None:
    stage = Stage("code-change", "edit", EDIT)
    done = [DoneCall(tool="file_edit", arguments=canonical(ARGUMENTS), content="Wrote.", outcome=Outcome.SUCCESS)]
    stage.again(texts.gate_failure_text(stage.state, CommandGate(name="tests", command="python3"), "FAILED"), done=done)
    stage.gives_up("the tests do not pass")
    stage.again(texts.failure_text(stage.state, "(demo) the tests do not pass"), done=done, attempt=3)
    stage.gives_up("the tests do not pass")
    stage.again(texts.review_text("", "Your last answer did not pass the gate tests"), done=done, attempt=4)
    assert stage.answer()["result"]["changed"] == ["greet.py"]


def test_the_summary_is_text() -> None:
    assert "Helo" in Stage("code-change", "summary", EDIT).answer()["result"]


# research


def test_it_searches_the_folder_and_never_the_web() -> None:
    stage = Stage("research", "search", "When is the (invoice) due?")
    assert "web_search" in stage.tools
    assert stage.asked("a b.txt:3: Invoice: x\nnote.txt:1: due\na b.txt:9: due") == [
        ("file_search", {"pattern": r"(?i)\b(?:invoice|due)"})
    ]
    assert stage.answer()["result"]["sources"] == ["a b.txt", "note.txt"]


def test_where_nothing_is_found_it_says_so_and_what_a_real_model_would_do() -> None:
    stage = Stage("research", "search", "invoice")
    stage.asked("[no match]")
    assert stage.asked("notes/\na.txt") == [("file_list", {"path": "."})]
    stage.gives_up("nothing in this folder", "search the web too")
    readme = Stage("research", "search", "invoice")
    readme.asked("[no match]")
    readme.asked("notes/\nREADME.md")
    assert readme.answer()["result"]["sources"] == ["README.md"]
    Stage("research", "search", "is it?").gives_up("no word")


def test_facts_are_lines_that_were_read() -> None:
    stage = Stage("research", "read", "invoice", search={"sources": ["a.txt", "b.txt"]})
    stage.asked("Nothing.\nThe invoice: 7", "file_read was not run: the invoice is gone")
    assert stage.answer()["result"]["facts"] == [{"fact": "The invoice: 7", "source": "a.txt"}]


def test_it_forgets_a_source_and_names_it_when_the_answer_is_refused() -> None:
    facts = [{"fact": "one", "source": "a.txt"}, {"fact": "two", "source": "b.txt"}]
    stage = Stage("research", "note", "count", read={"facts": facts})
    ((_, kept),) = stage.asked("Kept.")
    assert kept["text"].splitlines() == ["(demo) Notes on: count", "- one [a.txt]", "- two"]
    assert stage.answer()["result"] == kept["text"]
    stage.messages += [{"role": "user", "content": "[chatops] every note cites its source: must not match"}]
    ((_, kept),) = stage.asked("Kept.")
    assert kept["text"].splitlines()[-1] == "- two [b.txt]"
    assert stage.answer()["result"] == kept["text"]


@pytest.mark.parametrize("step", ["read", "note"])
def test_without_what_the_step_before_gave_it_gives_up(step: str) -> None:
    Stage("research", step, "x").gives_up("the step before")


# before a run


@for_each(
    ("workflow", "steps", "request_", "word"),
    [
        ("code-change", ["read", "edit"], "replace a with b in c.txt", ""),
        ("code-change", ["read", "edit"], "make c.txt say goodbye", "one kind of change only"),
        ("research", ["search"], "when is the invoice due?", ""),
        ("research", ["search"], "what is it?", "no word in the request"),
        ("trip", ["plan", "book"], "A weekend in Lisbon", ""),
        ("trip", ["plan", "book"], "a weekend", "only one kind of trip"),
        ("trip", ["plan", "pay"], "A weekend in Lisbon", "no language model"),
        ("mine", ["read"], "read a.txt", "no language model"),
    ],
)
def test_what_it_cannot_play_is_known_before_a_run(workflow: str, steps: list[str], request_: str, word: str) -> None:
    said = cannot_play(workflow, steps, request_)
    assert word in said and bool(said) is bool(word)
