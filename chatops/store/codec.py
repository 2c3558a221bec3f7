"""Stored form of values: JSON text, validated when it is read back.

The form follows the dataclasses, and the members of a union are told apart by `kind`. Turns and workflow runs have
versions. A new field with a default needs no new version, because older values load as they are. A change that stored
values do not survive needs a version, and an upgrade here over the parsed JSON. The golden files in
``tests/data/checkpoints`` and ``tests/data/runs`` must load for ever.

The standard library writes and parses the JSON, because pydantic's own parser refuses lone surrogates. Pydantic is
needed to read only: building its adapters takes longer than a turn takes from Enter to its request.
"""

import hashlib
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from enum import Enum
from functools import cached_property
from typing import Annotated, Any, Generic, TypeVar, cast

from pydantic import Field, TypeAdapter, ValidationError

from chatops.domain.decisions import ArgumentPattern, Decision, Principal, Recorded
from chatops.domain.errors import UnreadableError
from chatops.domain.events import PendingCall
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import MessageId
from chatops.domain.known_keys import without_keys
from chatops.domain.messages import Message, NoticeMessage, Usage
from chatops.engine.effects import RunTool, TurnStep
from chatops.engine.state import RoundRecord, TurnState
from chatops.engine.workflow.inputs import CancelRun, ReviewStep
from chatops.engine.workflow.state import WorkflowState
from chatops.policy.delegation import ChildBinding
from chatops.policy.grant import Grant

STATE_VERSION = 1
"""Version of a stored TurnState."""

RUN_VERSION = 1
"""Version of a stored WorkflowState."""

PRUNED = "result"
"""The only key of a checkpoint that was pruned to how its turn ended."""

_GRANTS_OF_PHASE = ("under", "proposed_under")
"""Fields of a turn's phases that hold a grant, as the field `grant` of the turn does."""

DAMAGED = "This message is damaged and cannot be shown."

T = TypeVar("T")

_DAMAGE_ADVICE = "Run `chatops doctor`; other sessions are not affected."


class _Form(Generic[T]):
    """Writes values of one type and reads them back. `what` names a value in errors.

    The adapter is built on first use: building all of them takes longer than opening the store.
    """

    def __init__(self, type_: Any, *, what: str) -> None:
        self._type = type_
        self._what = what

    @cached_property
    def adapter(self) -> TypeAdapter[T]:
        """Pydantic's adapter of the type."""
        return TypeAdapter(self._type)

    def encode(self, value: T) -> str:
        """Return `value` as JSON text."""
        return _to_json(value)

    def decode(self, text: object) -> T:
        """Return the value that `encode` of this or an older version wrote. Raises UnreadableError."""
        return self.validate(self.parse(text))

    def parse(self, text: object) -> dict[str, Any]:
        """Return the JSON object in a column, which may be damaged. Raises UnreadableError."""
        try:
            value = json.loads(text) if isinstance(text, str) else None
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise UnreadableError(f"A stored {self._what} is damaged: not a JSON object.", advice=_DAMAGE_ADVICE)
        return cast(dict[str, Any], value)

    def validate(self, value: Mapping[str, Any]) -> T:
        """Return the value of a JSON object. Raises UnreadableError with the location of the first fault."""
        try:
            return self.adapter.validate_python(value)
        except (ValidationError, RecursionError) as error:
            where = ""
            if isinstance(error, ValidationError):
                first: Sequence[int | str] = error.errors(include_url=False, include_input=False)[0]["loc"]
                where = " at " + ".".join(map(str, first)) if first else ""
            raise UnreadableError(f"A stored {self._what} is damaged{where}.", advice=_DAMAGE_ADVICE) from error


def _tagged_union(type_: object) -> object:
    return Annotated[type_, Field(discriminator="kind")]


_STATES = _Form[TurnState](TurnState, what="turn")
_GRANTS = _Form[Grant](Grant, what="grant")
_RUNS = _Form[WorkflowState](WorkflowState, what="run")
_USAGES = _Form[Usage](Usage, what="cost")
_MESSAGES = _Form[Message](_tagged_union(Message), what="message")
_PENDING = _Form[PendingCall](PendingCall, what="pending call")
_DECISIONS = _Form[Decision](_tagged_union(Decision), what="decision")
_RECORDED = _Form[Recorded](_tagged_union(Recorded), what="decision")
_PRINCIPALS = _Form[Principal](Principal, what="principal")
_PATTERNS = _Form[ArgumentPattern](_tagged_union(ArgumentPattern), what="grant")
_CHILDREN = _Form[ChildBinding](ChildBinding, what="child session")
_REVIEWS = _Form[ReviewStep | CancelRun](_tagged_union(ReviewStep | CancelRun), what="review")

encode_message = _MESSAGES.encode
encode_pending, decode_pending = _PENDING.encode, _PENDING.decode
encode_recorded, decode_recorded = _RECORDED.encode, _RECORDED.decode
encode_principal, decode_principal = _PRINCIPALS.encode, _PRINCIPALS.decode
encode_pattern, decode_pattern = _PATTERNS.encode, _PATTERNS.decode
encode_child, decode_child = _CHILDREN.encode, _CHILDREN.decode
encode_review, decode_review = _REVIEWS.encode, _REVIEWS.decode
encode_run = _RUNS.encode
encode_usage = _USAGES.encode


def _to_json(value: object) -> str:
    """Return compact JSON that keeps every character. A dataclass becomes an object with its fields."""
    # Digests are made of this text, so keys are out of it before it is stored.
    return without_keys(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_as_json))


def canonical_text(value: object) -> str:
    """Return the canonical JSON (`domain.canonical`) of a value with dataclasses in it."""
    return without_keys(
        json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_as_json)
    )


def _as_json(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, frozenset):
        return sorted(value)
    return _field_values(value)


def _field_values(value: object) -> dict[str, object]:
    names = _field_names.get(type(value))
    if names is None:
        names = _field_names[type(value)] = tuple(field.name for field in fields(cast(Any, value)))
    return {name: getattr(value, name) for name in names}


_field_names: dict[type, tuple[str, ...]] = {}
"""The fields of each dataclass, as a cache."""


@frozen_dataclass
class StoredState:
    """A stored state. The bodies of its messages and the history before the turn are stored apart."""

    state: TurnState
    messages: tuple[MessageId, ...]


def encode_state(state: TurnState, *, grants: dict[str, str] | None = None) -> str:
    """Return `state` encoded at STATE_VERSION, without the bodies of its messages.

    If `grants` is given, the text of each grant is added to it under its digest, and the state holds the digest only.
    Grants are most of a state and the same in each step of a turn: so they are not encoded and stored again and again.
    """
    payload = _field_values(state)
    del payload["history"]
    payload["messages"] = [message.id for message in state.messages]
    del payload["rounds"]
    if grants is not None:
        phase = payload["phase"] = _field_values(state.phase)
        for holder, name in ((payload, "grant"), *((phase, name) for name in _GRANTS_OF_PHASE)):
            if isinstance(grant := holder.get(name), Grant):
                digest, encoded = _encode_grant(grant)
                holder[name], grants[digest] = digest, encoded
    # Encoded apart: each step of a turn has the records of all its rounds so far.
    return f'{_to_json(payload)[:-1]},"rounds":[{_encode_rounds(state.rounds)}]}}'


def _encode_rounds(rounds: tuple[RoundRecord, ...]) -> str:
    """Return the records as JSON, without encoding again those that the last call had too."""
    global _last_rounds
    known, encoded = _last_rounds
    if rounds[: len(known)] != known:
        known, encoded = (), ()
    if new := rounds[len(known) :]:
        encoded = (*encoded, *map(_to_json, new))
        _last_rounds = (rounds, encoded)
    return ",".join(encoded)


_last_rounds: tuple[tuple[RoundRecord, ...], tuple[str, ...]] = ((), ())
"""The rounds that were encoded last, and the JSON text of each."""


def _encode_grant(grant: Grant) -> tuple[str, str]:
    """Return the digest of a grant and its JSON text, for the last few grants without encoding them again."""
    for known, digest, encoded in _encoded_grants:
        if known is grant:
            return digest, encoded
    encoded = _to_json(grant)
    digest = hashlib.sha256(_utf8(encoded)).hexdigest()
    _encoded_grants.appendleft((grant, digest, encoded))
    return digest, encoded


_encoded_grants: deque[tuple[Grant, str, str]] = deque(maxlen=4)
"""The last grants with their digests and JSON texts: a state holds up to three, mostly the same as before."""


def decode_state(
    text: str, *, version: int, grant_of: Callable[[str], str | None] = lambda digest: None
) -> StoredState:
    """Decode what `encode_state` of this or an older version wrote. Raises UnreadableError.

    `grant_of` returns the stored grant with a digest. One that does not have that digest counts as lost.
    """
    if not 1 <= version <= STATE_VERSION:
        raise UnreadableError(
            f"This turn was stored by a newer chatops (state version {version}, this one reads up to {STATE_VERSION}).",
            advice="Update chatops to resume it; the messages before it can be read.",
        )
    payload = _STATES.parse(text)
    if payload.keys() == {PRUNED}:
        raise UnreadableError("This turn is over, and only its result is stored.")
    ids = payload.pop("messages", None)
    if not isinstance(ids, list) or not all(isinstance(item, str) for item in ids):
        raise UnreadableError("A stored turn is damaged: its messages are not listed.", advice=_DAMAGE_ADVICE)
    phase = payload["phase"] if isinstance(payload.get("phase"), dict) else {}
    for holder, name in ((payload, "grant"), *((phase, name) for name in _GRANTS_OF_PHASE)):
        if isinstance(digest := holder.get(name), str):
            holder[name] = _parse_grant(digest, grant_of(digest))
    state = _STATES.validate(payload)
    return StoredState(state=state, messages=tuple(MessageId(item) for item in ids))


def prune(text: object) -> str:
    """Return what stays of a stored turn that nothing resumes: how it ended. Its rights are most of its size.

    Empty if all of the turn stays: an attempt at a step or a gate of a workflow, a pruned turn, a damaged one.
    """
    try:
        payload = _STATES.parse(text)
    except UnreadableError:
        return ""
    phase = payload.get("phase")
    if "messages" not in payload or payload.get("contract") or payload.get("gate") or not isinstance(phase, dict):
        return ""
    return _to_json({PRUNED: phase.get("result")})


def _parse_grant(digest: str, text: str | None) -> dict[str, Any]:
    if text is None or hashlib.sha256(_utf8(text)).hexdigest() != digest:
        raise UnreadableError("A stored turn is damaged: its grant is lost.", advice=_DAMAGE_ADVICE)
    return _GRANTS.parse(text)


def decode_decision(text: object) -> Decision:
    """Decode a posted decision. Raises UnreadableError, also if a field of it would be written with another value.

    A database of a team compares the decision in the log with the one that was posted, field by field.
    """
    decision, given = _DECISIONS.decode(text), _DECISIONS.parse(text)
    written = _DECISIONS.parse(encode_recorded(decision))
    # Not compared as values: True equals 1.
    if json.dumps(given) != json.dumps({name: written.get(name) for name in given}):
        raise UnreadableError("A stored decision has other fields than chatops writes.", advice=_DAMAGE_ADVICE)
    return decision


def decode_run(text: object, *, version: int) -> WorkflowState:
    """Decode what `encode_run` of this or an older version wrote. Raises UnreadableError."""
    if not 1 <= version <= RUN_VERSION:
        raise UnreadableError(
            f"This run was stored by a newer chatops (run version {version}, this one reads up to {RUN_VERSION}).",
            advice="Update chatops to resume it; its messages can be read.",
        )
    state = _RUNS.decode(text)
    step = 0 if state.phase.kind == "run_finished" else state.phase.step
    if not 0 <= step < len(state.spec.steps):
        raise UnreadableError("A stored run is damaged: no such step.", advice=_DAMAGE_ADVICE)
    return state


def decode_message(text: object, *, message_id: MessageId) -> Message:
    """Decode a message's body. Raises UnreadableError, also for the body of another message."""
    message = _MESSAGES.decode(text)
    if message.id != message_id:
        raise UnreadableError("A stored message is damaged: it has the id of another one.", advice=_DAMAGE_ADVICE)
    return message


def damaged_message(message_id: MessageId) -> NoticeMessage:
    """Return the notice that replaces a message that cannot be read."""
    return NoticeMessage(
        id=message_id, text=DAMAGED, level="warning", advice="Run `chatops doctor` to check the store."
    )


def fingerprint(step: TurnStep, *, state: str, messages: Sequence[str]) -> str:
    """Return a digest of everything that committing `step` stores, to recognise the same step again.

    `state` is the encoded state, `messages` are the encoded messages. The parts are digested one after the other: a
    reply may be megabytes, and joining them would copy it.
    """
    digest = hashlib.sha256(_utf8(state))
    runs = [effect for effect in step.effects if isinstance(effect, RunTool)]
    verdicts = []
    for row in step.verdicts:
        grants = [_encode_grant(grant)[0] for grant in row.grants]
        verdicts.append({**_field_values(row), "grants": grants})
    records = _to_json([runs, step.results, verdicts, step.decisions, step.rules, step.takes_queued])
    digest.update(_utf8(f"\x00{records}\x00"))
    for number, message in enumerate(messages):
        digest.update(b"\n" if number else b"")
        digest.update(_utf8(message))
    return digest.hexdigest()


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
