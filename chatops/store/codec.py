"""Stored form of values: JSON text, validated when it is read back. No pickle, no source hashes.

The form follows the dataclasses. The members of a union are told apart by `kind`. A change that older checkpoints do
not survive gets a new number in STATE_VERSIONS and an upgrade here. The golden files in ``tests/data/checkpoints`` must
load for ever.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from chatops.domain.decisions import ArgumentPattern, Decision, Principal, RememberedGrant
from chatops.domain.errors import UnreadableError
from chatops.domain.events import PendingCall
from chatops.domain.ids import MessageId
from chatops.domain.messages import Message, NoticeMessage
from chatops.domain.usage import Usage
from chatops.engine.effects import AttemptResult, DecisionRecord, RunTool, Step
from chatops.engine.state import TurnState
from chatops.store.form import DAMAGE_ADVICE, dumps, parsed, validated
from chatops.store.older import complete_message, complete_state

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
"""Contents of each version of a stored TurnState."""

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
"""Upgrades from one version to the next, over the parsed JSON."""

if set(_UPGRADES) != set(range(1, STATE_VERSION)):
    raise AssertionError("every older state version has an upgrade")

DAMAGED = "This message is damaged and cannot be shown."


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """A state as it is stored: its messages and the history before the turn are still to be joined."""

    state: TurnState
    messages: tuple[MessageId, ...]


def warm_up() -> None:
    """Build the codecs of turns and messages (some 50 ms), so that the first message need not wait for it."""
    _states()
    _messages()


def encode_state(state: TurnState) -> str:
    """Return `state` encoded at STATE_VERSION, without the bodies of its messages."""
    payload = _states().dump_python(replace(state, history=(), messages=()), mode="json")
    del payload["history"]
    payload["messages"] = [message.id for message in state.messages]
    return dumps(payload)


def decode_state(text: str, *, version: int) -> StoredState:
    """Decode what `encode_state` of this or an older version wrote. Raises UnreadableError."""
    if version not in STATE_VERSIONS:
        raise UnreadableError(
            f"This turn was stored by a newer chatops (state version {version}, this one reads up to {STATE_VERSION}).",
            advice="Update chatops to go on with it; the conversation before it can be read.",
        )
    payload = parsed(text, what="turn")
    for older in range(version, STATE_VERSION):
        payload = _UPGRADES[older](payload)
    ids = payload.pop("messages", None)
    if not isinstance(ids, list) or not all(isinstance(item, str) for item in ids):
        raise UnreadableError("A stored turn is damaged: its messages are not listed.", advice=DAMAGE_ADVICE)
    complete_state(payload)
    state = validated(_states(), payload, what="turn")
    return StoredState(state=state, messages=tuple(MessageId(item) for item in ids))


def decode_usage(text: object) -> Usage | None:
    """Return the usage from a stored turn's state; None if it cannot be read."""
    try:
        return validated(_usages(), parsed(text, what="cost"), what="cost")
    except UnreadableError:
        return None


def encode_message(message: Message) -> str:
    """Return a message's body encoded."""
    return dumps(_messages().dump_python(message, mode="json"))


def decode_message(text: object, *, message_id: MessageId) -> Message:
    """Decode a message's body. Raises UnreadableError, also for the body of another message."""
    payload = parsed(text, what="message")
    complete_message(payload)
    message = validated(_messages(), payload, what="message")
    if message.id != message_id:
        raise UnreadableError("A stored message is damaged: it has the id of another one.", advice=DAMAGE_ADVICE)
    return message


def damaged_message(message_id: MessageId) -> NoticeMessage:
    """Return the notice that replaces a message that cannot be read."""
    return NoticeMessage(
        id=message_id, text=DAMAGED, level="warning", advice="Run `chatops doctor` to check the store."
    )


def encode_pending(pending: PendingCall) -> str:
    """Return a pending call encoded, for its row in the queue."""
    return dumps(_pendings().dump_python(pending, mode="json"))


def decode_pending(text: object) -> PendingCall:
    """Decode a pending call. Raises UnreadableError."""
    return validated(_pendings(), parsed(text, what="pending call"), what="pending call")


def encode_decision(decision: Decision) -> str:
    """Return a decision encoded."""
    return dumps(_decisions().dump_python(decision, mode="json"))


def decode_decision(text: object) -> Decision:
    """Decode a decision. Raises UnreadableError: a damaged decision is void."""
    return validated(_decisions(), parsed(text, what="decision"), what="decision")


def encode_principal(principal: Principal) -> str:
    """Return the identity of a decider encoded."""
    return dumps(_principals().dump_python(principal, mode="json"))


def decode_principal(text: object) -> Principal:
    """Decode the identity of a decider. Raises UnreadableError."""
    return validated(_principals(), parsed(text, what="principal"), what="principal")


def encode_pattern(pattern: ArgumentPattern) -> str:
    """Return the pattern of a remembered grant encoded."""
    return dumps(_patterns().dump_python(pattern, mode="json"))


def decode_pattern(text: object) -> ArgumentPattern:
    """Decode the pattern of a remembered grant. Raises UnreadableError: a damaged pattern matches nothing."""
    return validated(_patterns(), parsed(text, what="grant"), what="grant")


def fingerprint(step: Step, *, state: str) -> str:
    """Return a digest of everything that committing `step` stores, to recognise the same step again.

    `state` is the encoded state. The parts are digested one after the other: a reply may be megabytes, and joining them
    would copy it.
    """
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


# Built on first use: building all of them takes longer than opening the store.


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
