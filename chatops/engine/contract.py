"""What the answer of a workflow's step has to fulfil, which calls the step allows when, and what was found out about
an answer.

The answer is one JSON object: the envelope ``{"success": bool, "result": any, "reasoning"?: str}``, or, where the step
has a schema, the bare object that fits it. Schema and gates concern the *result*: the envelope's member of that name,
or the bare object itself.
"""

from dataclasses import dataclass

from chatops.domain.tools import Outcome, Problem
from chatops.policy.workflow import PatternGate, Validation


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneCall:
    """A call of an earlier attempt that may have changed something: it is not made again but answered with this."""

    tool: str
    arguments: str
    """Canonical JSON, as run."""
    content: str
    """What it gave back, cut to size."""
    outcome: Outcome = Outcome.SUCCESS
    """Success, or unknown: nothing tells whether it took effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContract:
    """Belongs to a turn that is an attempt at a step; a turn of a chat has none."""

    output_schema: str = ""
    """JSON Schema (text) of the result; empty: any result."""
    validations: tuple[Validation, ...] = ()
    patterns: tuple[PatternGate, ...] = ()
    order: tuple[str, ...] = ()
    once: tuple[str, ...] = ()
    done: tuple[DoneCall, ...] = ()
    temperature: float | None = None
    max_output_tokens: int | None = None

    def validates(self, tool: str) -> bool:
        """Whether `tool` is one of the validations."""
        return any(validation.tool == tool for validation in self.validations)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFacts:
    """What was read out of a reply: found by whoever performs CheckAnswer, judged by the engine.

    The object is looked for in this order: the whole text as strict JSON, the content of a code fence, the objects in
    the text. The first envelope is the answer, else the first object that is not empty. Text that is JSON as a whole
    and no object (a list, a number) is not searched further.
    """

    value: str = ""
    """The object as canonical JSON; empty if there is none."""
    problems: tuple[Problem, ...] = ()
    """Why there is none."""
    bare_problems: tuple[Problem, ...] = ()
    """What the schema says against the whole object; none without a schema."""
    result_problems: tuple[Problem, ...] = ()
    """What the schema says against its member ``result``, each path beginning with ``result``; none without a schema or
    without that member."""
    bare_unmatched: tuple[str, ...] = ()
    """The pattern gates that the whole object does not pass, each as a line for the model."""
    result_unmatched: tuple[str, ...] = ()
    """The same for its member ``result``."""
