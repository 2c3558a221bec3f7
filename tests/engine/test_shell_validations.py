"""A shell as a validation: it shows something, and can undo what was shown."""

from dataclasses import replace

import pytest

from chatops.domain.canonical import canonical
from chatops.domain.decisions import Approved
from chatops.domain.events import TurnStatus
from chatops.domain.model import ModelReply
from chatops.domain.tools import RawCall
from chatops.engine.contract import StepContract
from chatops.engine.effects import CallModel
from chatops.engine.view import pending_calls
from chatops.policy.workflow import PassesWhen, Subject, Validation
from tests.engine.steps import (
    BY_COMPONENT,
    SHELL,
    STEP_TOOLS,
    calls,
    feedback,
    says,
    step_grant,
    validate,
    validating,
)
from tests.engine.world import World, raw

BY_COMMAND = Validation(
    tool="shell_exec",
    subject=(Subject(argument="command", pointer="/checked"),),
    passes_when=PassesWhen.EXIT_CODE_0,
)


def shell(command: str) -> RawCall:
    """A command."""
    return raw("shell_exec", canonical({"command": command}))


def with_a_shell(*replies: ModelReply, contract: StepContract) -> World:
    """A step whose commands are all approved."""
    world = World.begin(step_grant((*STEP_TOOLS, SHELL)), contract=contract)
    script = list(replies)
    while world.flying or pending_calls(world.state):
        while pending_calls(world.state):
            world.decide(0, Approved())
        model = script.pop(0) if script and isinstance(world.flying[0], CallModel) else None
        world.perform(0, model=model)
    return world


@pytest.mark.parametrize("depends_on", [None, ("configure",)])
def test_a_shell_that_validates_may_also_undo_what_was_validated(depends_on: tuple[str, ...] | None) -> None:
    world = with_a_shell(
        calls(shell("make check")),
        calls(shell("cp old new")),
        says({"checked": "make check"}),
        calls(shell("make check")),
        says({"checked": "make check"}),
        contract=validating(replace(BY_COMMAND, depends_on=depends_on)),
    )
    assert "shell_exec ran afterwards" in feedback(world)[0]
    assert len(feedback(world)) == 1
    assert world.finished.result is TurnStatus.ANSWERED


def test_a_shell_that_validates_may_also_undo_what_another_tool_has_validated() -> None:
    world = with_a_shell(
        calls(shell("make check")),
        calls(validate("a")),
        calls(shell("cp old new"), shell("make check")),
        says({"component": "a", "checked": "make check"}),
        contract=validating(BY_COMPONENT, BY_COMMAND),
    )
    assert 'validate (component="a") has passed, but shell_exec ran afterwards' in feedback(world)[0]
    assert "shell_exec (" not in feedback(world)[0]


def test_commands_that_the_answer_names_do_not_undo_each_other() -> None:
    world = with_a_shell(
        calls(validate("a"), shell("make check"), shell("make lint")),
        says({"component": "a", "checked": ["make check", "make lint"]}),
        contract=validating(BY_COMPONENT, BY_COMMAND),
    )
    assert world.finished.result is TurnStatus.ANSWERED
