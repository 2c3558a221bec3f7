"""The contract of a workflow step: requirements on its answer and limits on its calls.

The answer is one JSON object: the envelope ``{"success": bool, "result": any, "reasoning"?: str}`` or, if the step has
a schema, the bare object that fits it. Schema and gates apply to the *result*: the envelope's member of that name, or
the bare object itself.
"""

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.tools import Outcome, Problem
from chatops.policy.workflow import PatternGate, Validation


@frozen_dataclass
class DoneCall:
    """A call of an earlier attempt that may have changed something.

    A later attempt does not run it again but gets this result.
    """

    tool: str
    arguments: str
    """Canonical JSON, as run."""
    content: str
    """Its result, cut to size."""
    outcome: Outcome = Outcome.SUCCESS
    """SUCCESS, or UNKNOWN if it may have taken effect."""


@frozen_dataclass
class StepContract:
    """The contract of a turn that is an attempt at a step. A turn of a chat has none."""

    output_schema: str = ""
    """JSON Schema (text) of the result; empty: any result."""
    validations: tuple[Validation, ...] = ()
    """Tools that must have passed before an answer is accepted."""
    patterns: tuple[PatternGate, ...] = ()
    order: tuple[str, ...] = ()
    """Tools that have to succeed in this order."""
    once: tuple[str, ...] = ()
    """Tools that may succeed only once in the step."""
    done: tuple[DoneCall, ...] = ()
    """Calls of earlier attempts at the step."""
    temperature: float | None = None
    max_output_tokens: int | None = None

    def validates(self, tool: str) -> bool:
        """Return True if `tool` is one of the validations."""
        return any(validation.tool == tool for validation in self.validations)


@frozen_dataclass
class AnswerFacts:
    """Facts found in a reply. The performer of CheckAnswer finds them, the engine judges them.

    The object is looked for in this order: the whole text as strict JSON, the content of a code fence, the objects in
    the text. The first envelope is the answer, else the first object that is not empty. Text that is valid JSON but not
    an object (a list, a number) is not searched further.
    """

    value: str = ""
    """The object as canonical JSON; empty if there is none."""
    problems: tuple[Problem, ...] = ()
    """Reasons why no object was found."""
    bare_problems: tuple[Problem, ...] = ()
    """Schema violations of the whole object; empty without a schema."""
    result_problems: tuple[Problem, ...] = ()
    """Schema violations of its member ``result``, each path beginning with ``result``; empty without a schema or
    without that member."""
    bare_unmatched: tuple[str, ...] = ()
    """Pattern gates that the whole object does not pass, each as a line for the model."""
    result_unmatched: tuple[str, ...] = ()
    """Pattern gates that its member ``result`` does not pass, each as a line for the model."""
