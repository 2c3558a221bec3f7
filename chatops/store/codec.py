"""The stored form of values: JSON text, validated when read back. No pickle, no source hashes.

The form follows the dataclasses; their unions tell their members apart by `kind`. A change that an older
checkpoint does not survive gets a new number in STATE_VERSIONS and an upgrade here; the golden files in
``tests/data/checkpoints`` must load for ever.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from chatops.domain.decisions import ArgumentPattern, Decision, Principal, RememberedGrant
from chatops.domain.errors import Unreadable
from chatops.domain.events import PendingCall
from chatops.domain.ids import MessageId
from chatops.domain.messages import Message, NoticeMessage
from chatops.domain.usage import Usage
from chatops.engine.effects import AttemptResult, DecisionRecord, RunTool, Step
from chatops.engine.state import TurnState
from chatops.store.form import DAMAGE_ADVICE, dumps, parsed, validated

STATE_VERSIONS: dict[int, str] = {
    1: "The turn with grant, phase, counters, usage and remembered grants; messages as ids.",
    2: "Mistakes among the counters; the interpreter of a call that runs code; repairs of a call before its edit.",
    3: "Attempts at steps of workflows: their contract, the check of their answer, the command of a gate.",
    4: "What is known of an attempt that was interrupted, for as long as its call is in doubt.",
    5: "The definition of a call's tool, and why only a person may permit the call.",
    6: "That the store was copied since the calls of a round were proposed.",
    7: "Rules that give the workspace read-only; what a command may read that no open-ended rule answers for; when each"
    " validation of a step passes; input tokens from a prompt cache; whether the user was warned of a full context.",
}
"""What each version of a stored TurnState holds."""

STATE_VERSION = max(STATE_VERSIONS)

if sorted(STATE_VERSIONS) != list(range(1, STATE_VERSION + 1)) or not all(STATE_VERSIONS.values()):
    raise AssertionError("state versions are numbered from 1 without gaps, each with a summary")

_UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    1: lambda payload: payload,
    2: lambda payload: payload,
    3: lambda payload: payload,
    4: lambda payload: payload,
    5: lambda payload: payload,
    6: lambda payload: payload,
}
"""From a version to the next, over the parsed JSON."""

if set(_UPGRADES) != set(range(1, STATE_VERSION)):
    raise AssertionError("every older state version has an upgrade")

DAMAGED = "This message is damaged and cannot be shown."


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """A state as it lies in the store: `messages` are to be joined, and so is the history before the turn."""

    state: TurnState
    messages: tuple[MessageId, ...]


def warm_up() -> None:
    """Build what reads and writes turns and messages (some 50 ms), so that the first message need not wait for it."""
    _states()
    _messages()


def encode_state(state: TurnState) -> str:
    """`state` at STATE_VERSION, without the bodies of its messages."""
    payload = _states().dump_python(replace(state, history=(), messages=()), mode="json")
    del payload["history"]
    payload["messages"] = [message.id for message in state.messages]
    return dumps(payload)


def decode_state(text: str, *, version: int) -> StoredState:
    """Read what `encode_state` of this or an older version wrote. Raises Unreadable."""
    if version not in STATE_VERSIONS:
        raise Unreadable(
            f"This turn was stored by a newer chatops (state version {version}, this one reads up to {STATE_VERSION}).",
            advice="Update chatops to go on with it; the conversation before it can be read.",
        )
    payload = parsed(text, what="turn")
    for older in range(version, STATE_VERSION):
        payload = _UPGRADES[older](payload)
    ids = payload.pop("messages", None)
    if not isinstance(ids, list) or not all(isinstance(item, str) for item in ids):
        raise Unreadable("A stored turn is damaged: its messages are not listed.", advice=DAMAGE_ADVICE)
    state = validated(_states(), payload, what="turn")
    return StoredState(state=state, messages=tuple(MessageId(item) for item in ids))


def decode_usage(text: object) -> Usage | None:
    """The cost of a stored turn, as it stands in its state; None if nothing can be read there."""
    try:
        return validated(_usages(), parsed(text, what="cost"), what="cost")
    except Unreadable:
        return None


def encode_message(message: Message) -> str:
    """A message's body."""
    return dumps(_messages().dump_python(message, mode="json"))


def decode_message(text: object, *, message_id: MessageId) -> Message:
    """A message's body; whatever is not one becomes a notice in its place, so that the rest can be read."""
    try:
        message = validated(_messages(), parsed(text, what="message"), what="message")
    except Unreadable:
        message = None
    if message is None or message.id != message_id:
        return damaged_message(message_id)
    return message


def damaged_message(message_id: MessageId) -> NoticeMessage:
    """What stands in the place of a message that cannot be read."""
    return NoticeMessage(
        id=message_id, text=DAMAGED, level="warning", advice="Run `chatops doctor` to check the store."
    )


def encode_pending(pending: PendingCall) -> str:
    """A row of the queue."""
    return dumps(_pendings().dump_python(pending, mode="json"))


def decode_pending(text: object) -> PendingCall:
    """Raises Unreadable."""
    return validated(_pendings(), parsed(text, what="pending call"), what="pending call")


def encode_decision(decision: Decision) -> str:
    """A person's answer."""
    return dumps(_decisions().dump_python(decision, mode="json"))


def decode_decision(text: object) -> Decision:
    """Raises Unreadable: a damaged answer is no answer."""
    return validated(_decisions(), parsed(text, what="decision"), what="decision")


def encode_principal(principal: Principal) -> str:
    """Who decided."""
    return dumps(_principals().dump_python(principal, mode="json"))


def decode_principal(text: object) -> Principal:
    """Raises Unreadable."""
    return validated(_principals(), parsed(text, what="principal"), what="principal")


def encode_pattern(pattern: ArgumentPattern) -> str:
    """What a remembered grant matches."""
    return dumps(_patterns().dump_python(pattern, mode="json"))


def decode_pattern(text: object) -> ArgumentPattern:
    """Raises Unreadable: a damaged pattern matches nothing."""
    return validated(_patterns(), parsed(text, what="grant"), what="grant")


def fingerprint(step: Step, *, state: str) -> str:
    """A digest of everything that committing `step` stores, to recognise the same step again; `state` is its state
    encoded. One text after the other is digested: a reply may be megabytes, and a whole of all would be more copies."""
    digest = hashlib.sha256(_bytes(state))
    digest.update(_bytes("\x00" + dumps(_records().dump_python(_carried(step), mode="json")) + "\x00"))
    for number, message in enumerate(step.messages):
        digest.update(b"\n" if number else b"")
        digest.update(_bytes(encode_message(message)))
    return digest.hexdigest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Carried:
    runs: tuple[RunTool, ...]
    results: tuple[AttemptResult, ...]
    decisions: tuple[DecisionRecord, ...]
    grants: tuple[RememberedGrant, ...]
    takes_kept: bool


def _carried(step: Step) -> _Carried:
    runs = tuple(effect for effect in step.effects if isinstance(effect, RunTool))
    return _Carried(
        runs=runs,
        results=step.results,
        decisions=step.decisions,
        grants=step.grants,
        takes_kept=step.takes_kept,
    )


# Built when first needed: building all of them costs more than opening the store.


@cache
def _states() -> TypeAdapter[TurnState]:
    return TypeAdapter(TurnState)


@cache
def _usages() -> TypeAdapter[Usage]:
    return TypeAdapter(Usage)


@cache
def _messages() -> TypeAdapter[Message]:
    return TypeAdapter(Annotated[Message, Field(discriminator="kind")])


@cache
def _pendings() -> TypeAdapter[PendingCall]:
    return TypeAdapter(PendingCall)


@cache
def _decisions() -> TypeAdapter[Decision]:
    return TypeAdapter(Annotated[Decision, Field(discriminator="kind")])


@cache
def _principals() -> TypeAdapter[Principal]:
    return TypeAdapter(Principal)


@cache
def _patterns() -> TypeAdapter[ArgumentPattern]:
    return TypeAdapter(Annotated[ArgumentPattern, Field(discriminator="kind")])


@cache
def _records() -> TypeAdapter[_Carried]:
    return TypeAdapter(_Carried)
