"""Check a workflow before it runs, and describe problems with file, line, column and key."""

from dataclasses import dataclass

from chatops.config.document import key_of
from chatops.config.workflow_schema import schema_fault
from chatops.domain.errors import ConfigError
from chatops.policy.workflow_checks import Known, Severity, WorkflowProblem, check_workflow
from chatops.policy.workflow_definition import Definition

MOST_TOLD = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Result of checking one workflow; one sentence per problem."""

    definition: Definition
    errors: tuple[str, ...] = ()
    """With any of these, the workflow does not start."""
    warnings: tuple[str, ...] = ()

    def or_raise(self) -> Definition:
        """Return the definition. Raises ConfigError with the errors, one per line, if there are any."""
        if not self.errors:
            return self.definition
        more = len(self.errors) - MOST_TOLD
        lines = (*self.errors[:MOST_TOLD], *((f"… and {more} more.",) if more > 0 else ()))
        raise ConfigError("\n".join(lines), advice="Correct the workflow; nothing of it was run.")


def check(definition: Definition, *, known: Known) -> Checked:
    """Check everything that can be checked before a run."""
    problems = check_workflow(definition.spec, known=known, schema_fault=schema_fault)
    return Checked(
        definition=definition,
        errors=tuple(told(definition, one) for one in problems if one.severity is Severity.ERROR),
        warnings=tuple(told(definition, one) for one in problems if one.severity is Severity.WARNING),
    )


def told(definition: Definition, problem: WorkflowProblem) -> str:
    """Return a problem as a sentence. Without a file it names the workflow and the step."""
    place = definition.place(problem.keys)
    if place is None:
        return f"Workflow {definition.name}{key_of(problem.keys)}: {problem.message}."
    keys = key_of((*definition.prefix, *problem.keys))
    return f"{definition.spec.source}, line {place[0]}, column {place[1]}{keys}: {problem.message}."
