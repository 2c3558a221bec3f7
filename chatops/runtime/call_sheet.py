"""A pending call as labelled facts, and what the user can answer: made once, and rendered by every surface.

The approval dialog colours these facts, ``approvals show`` prints them, its JSON lists them. So no surface can leave
one out or offer what another one does not. A surface may fold facts of weight `SETTING` that it has shown before, and
hide `DETAIL` behind a key. Everything else has to be seen before an approval.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from chatops.domain.decisions import ArgumentPattern, HostPattern, PathPattern
from chatops.domain.events import AskReason, PendingCall
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sandbox import NARROWEST
from chatops.domain.sanitize import reveal, show_path
from chatops.domain.tools import BUILT_IN_TOOLS, CONTAINED_APPLY, CallFacts, is_undo, shown_verb
from chatops.engine.containment import CHANGING
from chatops.policy.budget import amount
from chatops.policy.remembered import why_not_written
from chatops.policy.rule_syntax import show_rule, suggest_exact, suggest_rules
from chatops.policy.sandbox import describe_extra
from chatops.runtime.call_facts import Fact, Form, ReachedLimit, UncountedModel, Weight, all_facts, budget_asks

_MAX_SHORT_LINES = 5
"""Lines of a call up to which the cautions stand below it."""
_CHARS_PER_LINE = 70
"""Approximate characters of a line of the call."""


class Reading(NamedTuple):
    """Facts in the order to read them."""

    notes: list[Fact]
    above: list[Fact]
    """Labelled lines before the call: the cautions, if it is long, so that none begins far down."""
    call: list[Fact]
    below: list[Fact]
    """Labelled lines after the call, cautions first."""
    blocks: list[Fact]
    """Further texts of several lines."""


def reading_order(facts: Sequence[Fact]) -> Reading:
    """Return the facts that are not details in the order to read them."""
    notes, call, cautions, rest = (
        [fact for fact in facts if fact.weight in weights]
        for weights in (
            (Weight.NOTE,),
            (Weight.CALL,),
            (Weight.CAUTION,),
            (Weight.EFFECT, Weight.ATTEMPT, Weight.LACK, Weight.SETTING),
        )
    )
    blocks = [fact for fact in rest if fact.form in (Form.FOREIGN, Form.TEXT)]
    lines = [fact for fact in rest if fact not in blocks]
    long = sum(1 + len(part) // _CHARS_PER_LINE for fact in call for part in fact.value.split("\n")) > _MAX_SHORT_LINES
    return Reading(notes, cautions if long else [], call, lines if long else [*cautions, *lines], blocks)


OfferKey = Literal["a", "s", "S", "r", "+", "c", "e"]
"""An answer to a call, named by its key in the dialog."""


@frozen_dataclass
class Offer:
    """An answer that the user can give in the dialog."""

    key: OfferKey
    allows: str
    """The permission as a phrase."""
    pattern: ArgumentPattern | None = None
    """The rule for the rest of the session, for `s` and `S`."""


class FoldedFacts(NamedTuple):
    """The facts of a sheet without its details."""

    shown: tuple[Fact, ...]
    folded: tuple[Fact, ...]
    """Settings of which one row gives the labels alone."""


@frozen_dataclass
class CallSheet:
    """All that the user has to know of a pending call, in the order to read it, and the answers there are."""

    facts: tuple[Fact, ...]
    offers: tuple[Offer, ...]

    @property
    def warnings(self) -> tuple[Fact, ...]:
        """The facts that no summary leaves out."""
        return tuple(fact for fact in self.facts if fact.weight in (Weight.NOTE, Weight.CAUTION, Weight.ATTEMPT))

    def fold_known(self, before: "CallSheet | None") -> "FoldedFacts":
        """Fold the settings that `before` has too. A single one is not: the row that names it would be no shorter."""
        known = frozenset(before.facts) if before is not None else frozenset[Fact]()
        shown = [fact for fact in self.facts if fact.weight is not Weight.DETAIL]
        folded = tuple(fact for fact in shown if fact.weight is Weight.SETTING and fact in known)
        folded = folded if len(folded) > 1 else ()
        return FoldedFacts(tuple(fact for fact in shown if fact not in folded), folded)


def call_sheet(pending: PendingCall, *, now: float) -> CallSheet:
    """Return the sheet of a call. `now` is in seconds since the epoch."""
    facts = dict.fromkeys(fact for fact in all_facts(pending, now=now) if fact.value)
    return CallSheet(facts=tuple(facts), offers=tuple(call_offers(pending)))


def budget_question(pending: PendingCall) -> str:
    """Return what a turn asks that has reached its budget, as a sentence; empty for a call."""
    if pending.reason is not AskReason.BUDGET:
        return ""
    match budget_asks(pending):
        case UncountedModel(limit=limit, model=model):
            return f"Go on with {model}, whose {'price is' if limit == 'cost' else 'tokens are'} not known?"
        case ReachedLimit(limit=limit, more=more):
            return f"Go on for {amount(limit, more)} more{'' if limit == 'cost' else f' {limit}'}?"


def call_offers(pending: PendingCall) -> Iterator[Offer]:
    """Yield the answers that the dialog offers for a call that may run.

    Nothing is offered where the rights in force would deny the call, except to edit it, and for an unknown outcome,
    which has answers of its own.
    """
    facts, edit = pending.facts, Offer(key="e", allows="other arguments, checked and shown again")
    if pending.outcome_unknown:
        return
    if pending.denial is not None:
        yield edit
        return
    if pending.reason is AskReason.BUDGET:
        yield Offer(key="a", allows="this turn to go on")
        return
    yield Offer(key="a", allows="this call once, as shown")
    # The user decides each call that was repaired, or that only a decision on itself permits.
    if pending.call.name != CONTAINED_APPLY and not facts.repairs and not facts.needs_user and not pending.approvers:
        yield from _rule_offers(pending)
    if facts.extra != NARROWEST:
        yield Offer(key="+", allows=f"this call once, with {describe_extra(facts.extra)}")
    if pending.call.name in CHANGING and not facts.contained and pending.model and not pending.caller:
        yield Offer(key="c", allows="work on a copy of the folder; its changes are asked about at the end")
    yield edit


def _rule_offers(pending: PendingCall) -> Iterator[Offer]:
    tool, facts = pending.call.name, pending.facts
    exact, widest = suggest_exact(tool, facts), suggest_rules(tool, facts)[-1]
    yield Offer(key="s", allows=_pattern_words(tool, facts, exact), pattern=exact)
    known = BUILT_IN_TOOLS.get(tool)
    if known is not None and isinstance(widest, PathPattern) and widest.glob.endswith("/**"):
        if known.writes and not why_not_written(widest, known, facts):
            yield Offer(key="S", allows=f"any {tool} in {widest.glob.removesuffix('**')}", pattern=widest)
    yield Offer(key="r", allows=f"rules up to {show_rule(tool, widest)}")


def _pattern_words(tool: str, facts: CallFacts, pattern: ArgumentPattern) -> str:
    match pattern:
        case PathPattern():
            return f"any {tool} of this file"
        case HostPattern(host=host):
            return f"any {tool} of {host}"
        case _ if facts.command:
            return f"this {'code' if facts.interpreter else 'command'}"
        case _:
            return "exactly these arguments"


def question(pending: PendingCall) -> str:
    """Return what is asked about a call, as a heading: ``Approve Shell?``."""
    if asked := budget_question(pending):
        return asked
    verb = shown_verb(pending.call.name, pending.capabilities, pending.call.arguments)
    if pending.outcome_unknown:
        return f"{verb} was interrupted, outcome unknown"
    if pending.denial is not None:
        return f"Not permitted now: {verb}"
    if pending.call.name == CONTAINED_APPLY:
        return "Undo these changes?" if is_undo(pending.call.arguments) else "Apply the changes of this turn?"
    return f"Approve gate {pending.gate}?" if pending.gate is not None else f"Approve {verb}?"


def subject_line(pending: PendingCall) -> str:
    """Return what a call is about, on one line with nothing hidden: the command, its files, its hosts or arguments."""
    facts = pending.facts
    return (
        reveal(budget_question(pending), newlines=False)
        or reveal(facts.command, newlines=False, strict=True)
        or " ".join(show_path(facts.relative(path)) for path in facts.paths)
        or reveal(" ".join(facts.hosts), newlines=False, strict=True)
        or reveal(facts.arguments, newlines=False)
    )
