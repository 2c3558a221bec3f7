"""The audit log: every verdict, decision, start, result, rule and prompt of a session, in one hash chain per session.

Theory of operation

A row is written by the commit of the step that it belongs to, in the same transaction. So neither is stored without the
other, whenever the process dies. A chain for each session, and not one for all, lets writers of different sessions not
wait for each other. What belongs to no session (revoked rules, trust) is in the chain of the session ``""``.

A row has the session, its number in the chain (from 1), `body` and `chain`. `body` is the canonical JSON
(`domain.canonical`) of an object with `session`, `number`, `at` (seconds since the epoch), `kind` and the fields of
that kind. `chain` is ``digest(chain of the row before, body as a value)``, with ``""`` before the first row.

A program that can write the file can write a whole chain again. So a chain proves nothing by itself. Its head, kept
where that writer cannot write (an anchor), proves every row up to it: the journal of the system (a sink), or a signed
export. An anchor is a line of JSON with `session`, `number` and `chain`; each row of an export is one.

Kinds of rows (a field is left out while it is empty):

- ``prompt``: `message`, `from` and `sha256` of the text.
- ``verdict``: `call_id`, `tool`, `verdict` (allow, ask, deny), `why`, `layer`, `answered_by` (the rule that answered an
  ask), `digest` (of what is shown and approved), `role`, `level`, `model`, `engine`, `endpoint`, `registries` (digests,
  the site's first), `layers` (those that no registry makes: session, folder, skill; as stored in a grant), `read` (the
  session had read the workspace), `by` (uid, surface), `sha256` of the arguments, and `facts`: the fields of
  `CallFacts` that policy judges by. Without `facts` (denied before anything was known of the call) there is
  `workspace`. An allow is written when the call starts, or ends without a start; an ask when it asks, a deny when it
  is denied.
- ``decision``: `call_id`, `tool`, `digest`, `decision` and `by` as in `domain.decisions`; `decided_at` if it was
  posted by another process. Budgets, contained changes and delegation are calls, with such rows.
- ``rule``: a remembered rule that was made. ``revoked``: `rule`, the id, and `by` (uid, surface).
- ``trust``: `folder`, `answer` (trusted, declined, revoked), `by`, and `items` (kind, path, digest) as they were shown.
  The row is written before the answer is in force, and after trust was revoked. So no trust is without its row.
- ``review``: the user reviewed a step of a workflow or ended its run: `review`, the input of that, and `by`.
- ``start``: `call_id`, `attempt`, `digest`: the call starts with this commit.
- ``result``: `call_id`, `attempt`, `outcome`, and `sha256` of the result.

In `facts.arguments`, a value that a tool shows as a diff, that is code, or whose name looks like a secret is replaced
by ``{"sha256": …}``. Arguments longer than `LONGEST_ARGUMENTS` characters are left out; `sha256` is always of all of
them.

Sinks. A site registry may name one (``audit.sink``), which keeps heads of chains outside of the users' reach. Before a
call starts, and after the commit that holds its `start` row, the head of the session's chain is sent there, as an
anchor. So it proves that row and all before it, and never names a row that is not stored. Until the sink has taken it
the call does not start: the runtime tries again for `SINK_PATIENCE_S` and then ends the call as not run. A crash
meanwhile is one between commit and start: the next process asks about the call.

Both sinks are local datagram sockets, so a line is there as a whole or not at all. What the service behind it does with
a line that its socket took is its administrator's matter. journald notes which user sent a line, and no user can make
that up. syslog notes nothing that can be trusted.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from chatops.domain.canonical import canonical, json_or_text, parse_json
from chatops.domain.errors import StoreError, UnreadableError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import MessageId
from chatops.domain.known_keys import without_keys
from chatops.domain.names import looks_secret
from chatops.store.base import AuditRow, Late, StorePart
from chatops.store.connection import integer, readable, real, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from chatops.config.trust import TrustAnswer
    from chatops.config.workspace_files import Item
    from chatops.domain.messages import Message
    from chatops.engine.effects import TurnStep, VerdictRecord
    from chatops.store import codec
    from chatops.store.connection import Connection, SqlRow
else:
    codec = Late("chatops.store.codec")

LONGEST_ARGUMENTS = 4_000
"""Characters of arguments that are kept in the log, which is never pruned."""
ELSEWHERE = ""
"""The session in rows that belong to no session."""
_FACTS = (
    *("repairs", "refusal", "caution", "reveals", "cwd", "workspace", "paths", "hosts", "command", "argv"),
    *("interpreter", "needs_user", "contained", "sandbox", "sandboxed", "network", "folder", "definition"),
    *("server", "delegation", "credentials"),
)
"""Fields of `CallFacts` that a verdict depends on, and the sandbox."""
SinkKind = Literal["journald", "syslog"]
SINK_SOCKETS: dict[SinkKind, str] = {"journald": "/run/systemd/journal/socket", "syslog": "/dev/log"}
SINK_TIMEOUT_S = 2.0
"""Seconds that one attempt waits for a service that does not read: the call waits too."""
SINK_PATIENCE_S = 60.0
"""Seconds in which a call tries again before it ends as not run."""
_TAG = "chatops"
_PRIORITY = 10 * 8 + 5
"""Facility authpriv, severity notice, as RFC 3164 has them."""


def sha256(content: str) -> str:
    """Return the digest of a text in UTF-8."""
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()


def _stored_digest(content: str) -> str:
    """Return the digest of a text as the store keeps it, without keys."""
    return sha256(without_keys(content))


def link(before: str, body: str) -> str:
    """Return the chain value of a row: ``digest(before, value of body)``."""
    return sha256(f'["{before}",{body}]')


def append_step(rows: Connection, step: TurnStep, *, now: float, via: str) -> None:
    """Write the rows of a step taken on the surface `via`, within its transaction.

    Call it while the posted decisions that the step takes are still stored: their rows have `decided_at` from there.
    """
    if entries := [*_describe_step(rows, step, via=via)]:
        append(rows, step.state.session_id, entries, now=now)


def append(rows: Connection, session_id: str, entries: Iterable[Mapping[str, Any]], *, now: float) -> None:
    """Write rows at the end of the chain of a session, within the current transaction."""
    last = last_row(rows, session_id)
    number, chain = (last.number, last.chain) if last is not None else (0, "")
    for entry in entries:
        number += 1
        filled = {name: value for name, value in entry.items() if value not in ("", (), None, False)}
        body = codec.canonical_text({**filled, "session": session_id, "number": number, "at": round(now, 3)})
        chain = link(chain, body)
        rows.insert("audit", session_id=session_id, number=number, body=body, chain=chain)


def this_user(via: str) -> dict[str, Any]:
    """Return who runs this process, and on which surface, as the log has it."""
    return {"uid": os.getuid(), "via": via}


def last_row(rows: Connection, session_id: str) -> AuditRow | None:
    """Return the last row of a chain; None if it has none."""
    found = rows.one(
        f"{_SELECT_ROWS.format(rows.WRITTEN_BY)} WHERE session_id = ? ORDER BY number DESC LIMIT 1", session_id
    )
    return None if found is None else _decode_row(found)


def rows_of(rows: Connection, session_id: str | None = None) -> list[AuditRow]:
    """Return the rows of a session, or all of them, by session and number."""
    wanted = "WHERE ?1 IS NULL OR session_id = ?1 ORDER BY session_id, number"
    found = rows.all(f"{_SELECT_ROWS.format(rows.WRITTEN_BY)} {wanted}", session_id)
    return readable(found, _decode_row, what="a row of the audit log")


_SELECT_ROWS = "SELECT session_id, number, body, chain, {} FROM audit"


def _decode_row(row: SqlRow) -> AuditRow:
    session_id, number, body, chain, by = row
    return AuditRow(
        session_id=text(session_id), number=integer(number), body=text(body), chain=text(chain), written_by=text(by)
    )


def _describe_step(rows: Connection, step: TurnStep, *, via: str) -> Iterator[dict[str, Any]]:
    for message in step.messages:
        if message.kind == "user":
            yield {"kind": "prompt", "message": message.id, "from": message.by, "sha256": _stored_digest(message.text)}
    for closing in step.results:
        yield {
            "kind": "result",
            "call_id": closing.call_id,
            "attempt": closing.attempt,
            "outcome": closing.result.outcome,
            "sha256": _stored_digest(closing.result.content),
        }
    for verdict in step.verdicts:
        workspace = None
        if verdict.facts is None:
            (workspace,) = rows.one("SELECT workspace FROM sessions WHERE id = ?", step.state.session_id) or (None,)
        yield {**_verdict_entry(verdict, via=via), "workspace": workspace}
    for decided in step.decisions:
        posted = rows.one(
            "SELECT decided_at FROM posted WHERE call_id = ? AND digest = ?", decided.call_id, decided.digest
        )
        yield {
            "kind": "decision",
            "call_id": decided.call_id,
            "tool": decided.tool,
            "digest": decided.digest,
            "decision": decided.decision,
            "by": decided.by,
            "decided_at": None if posted is None else posted[0],
        }
    for rule in step.rules:
        yield {"kind": "rule", "rule": rule}
    for effect in step.effects:
        if effect.kind == "run_tool":
            yield {"kind": "start", "call_id": effect.call.id, "attempt": effect.attempt, "digest": effect.digest}


def _verdict_entry(verdict: VerdictRecord, *, via: str) -> dict[str, Any]:
    grants, facts = verdict.grants, verdict.facts
    proposed_under, in_force = grants[0], grants[-1]
    models = (model for grant in grants for model in grant.models)
    target = next((model for model in models if model.name == verdict.model), None)
    layers = (layer for grant in grants for layer in grant.layers)
    arguments = facts.arguments if facts is not None else verdict.call.arguments
    kept: dict[str, Any] = {}
    if facts is not None:
        values = {name: getattr(facts, name) for name in _FACTS}
        kept = {name: value for name, value in values.items() if value}
        spec = proposed_under.tool(verdict.call.name)
        hidden = (*spec.capabilities.in_diff, spec.capabilities.code) if spec is not None else ()
        kept["arguments"] = _hide_values(arguments, hidden) if len(arguments) <= LONGEST_ARGUMENTS else None
    return {
        "kind": "verdict",
        "call_id": verdict.call.id,
        "tool": verdict.call.name,
        "verdict": verdict.verdict,
        "why": verdict.why,
        "layer": verdict.layer,
        "answered_by": verdict.answered_by,
        "digest": verdict.digest,
        "role": proposed_under.role,
        "level": min(grant.level for grant in grants).word,
        "model": verdict.model,
        "engine": target.engine if target is not None else "",
        "endpoint": target.endpoint if target is not None else "",
        "registries": in_force.registries,
        "layers": tuple(dict.fromkeys(layer for layer in layers if not layer.of_registry)),
        "read": verdict.workspace_read,
        "by": this_user(via),
        "sha256": _stored_digest(arguments),
        "facts": kept or None,
    }


def _hide_values(arguments: str, hidden: Sequence[str]) -> object:
    """Return the arguments as a JSON object with digests for the `hidden` and secret ones; None if they are none."""
    values = json_or_text(arguments)
    if not isinstance(values, Mapping):
        return None
    shown: dict[str, object] = {}
    for name, value in values.items():
        if name in hidden or looks_secret(name):
            text = value if isinstance(value, str) else canonical(value)
            shown[name] = {"sha256": sha256(text)}
        else:
            shown[name] = value
    return shown


class AuditLog(StorePart):
    """The methods of `Store` about the audit log."""

    def audit(self, *, session_id: str | None = None) -> list[AuditRow]:
        """Return all rows, by session and number."""
        with self._rows.read():
            return rows_of(self._rows, session_id)

    def audit_head(self, session_id: str) -> AuditRow | None:
        """Return the last row of a session; None if it has none."""
        with self._rows.read():
            return last_row(self._rows, session_id)

    def log_trust(self, folder: str, answer: TrustAnswer, items: Iterable[Item] = ()) -> None:
        """Write that the user has given or revoked trust: before it is in force, and after it was revoked."""
        shown = tuple((item.kind.value, item.path, item.digest) for item in items)
        entry = {"kind": "trust", "folder": folder, "answer": answer, "items": shown, "by": this_user(self.surface)}
        with self._rows.write():
            append(self._rows, ELSEWHERE, [entry], now=self._clock())

    def message(self, message_id: str) -> Message | None:
        """Return a message; None if it is not stored. Raises UnreadableError for a damaged one."""
        with self._rows.read():
            found = self._rows.one("SELECT body FROM messages WHERE id = ?", message_id)
        return None if found is None else codec.decode_message(found[0], message_id=MessageId(message_id))


def to_line(row: AuditRow, *, text: str | None = None) -> str:
    """Return a row as a line of an export: its entry with `chain`, the `text` of a prompt if given, and `written_by`.

    Without these three it is the entry that `chain` is computed over. Raises ValueError for a damaged body.
    """
    more = {} if text is None else {"text": text}
    if row.written_by:
        more["written_by"] = row.written_by
    return canonical({**entry_of(row.body), **more, "chain": row.chain})


def entry_of(body: str) -> dict[str, Any]:
    """Return the JSON object in a body or a line. Raises ValueError."""
    entry = parse_json(body)
    if not isinstance(entry, dict):
        raise ValueError("no JSON object")
    return entry


SHAPE_ERRORS = (AttributeError, KeyError, TypeError, UnreadableError, ValueError)
"""Errors of reading an entry that lacks a field or has one of another type. Another program has written it."""


@frozen_dataclass
class Anchor:
    """The chain value of a row, kept where a writer of the store cannot change it."""

    session: str
    number: int
    chain: str


def read_anchors(content: str) -> list[Anchor]:
    """Return the anchors in lines of text. Each line ends in JSON, perhaps after other words, as in a system log.

    Raises ValueError for a line without an anchor.
    """
    return [_parse_anchor(found, number) for number, found in enumerate(content.splitlines(), 1) if found.strip()]


def _parse_anchor(content: str, number: int) -> Anchor:
    try:
        value = parse_json(content[content.index("{") :])
        if isinstance(value, Mapping):
            match value.get("session"), value.get("number"), value.get("chain"):
                case str(session), int(place), str(chain):
                    return Anchor(session=session, number=place, chain=chain)
    except ValueError:
        pass
    raise ValueError(f"line {number} is no anchor: expected a JSON object with session, number and chain")


class Verified(NamedTuple):
    """Result of verifying the chains."""

    faults: list[str]
    proven: dict[str, int]
    """The number of the last row of each session that an anchor proves."""


def verify(rows: Sequence[AuditRow], anchors: Sequence[Anchor]) -> Verified:
    """Verify the chains, and compare them with the anchors.

    `rows` are all rows of the store, by session and number. A change up to the row of an anchor is always found. A
    later change is found unless its author has also written the rest of the chain again.
    """
    chains, faults = _read_chains(rows)
    proven, differing = _compare(chains, anchors)
    return Verified(faults + differing, proven)


def _read_chains(rows: Sequence[AuditRow]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the chain values of each session, and the rows that do not belong where they stand."""
    faults: list[str] = []
    chains: dict[str, list[str]] = {}
    for row in rows:
        chain = chains.setdefault(row.session_id, [])
        name, expected = _log_name(row.session_id), len(chain) + 1
        writer = f", written by {row.written_by}," if row.written_by else ""
        if row.number != expected:
            faults.append(f"{name}: row {row.number} stands where row {expected} should be: removed or inserted")
        elif not is_sound(row):
            faults.append(f"{name}: row {row.number}{writer} was changed")
        elif row.chain != link(chain[-1] if chain else "", row.body):
            faults.append(f"{name}: row {row.number}{writer} does not follow row {row.number - 1}: changed or moved")
        chain.append(row.chain)
    return chains, faults


def _compare(chains: dict[str, list[str]], anchors: Sequence[Anchor]) -> tuple[dict[str, int], list[str]]:
    """Return the last row of each session that an anchor proves, and the first difference of each session."""
    proven: dict[str, int] = {}
    differs: dict[str, str] = {}
    for anchor in anchors:
        chain, name = chains.get(anchor.session, []), _log_name(anchor.session)
        if not 1 <= anchor.number <= len(chain):
            ends = f"and the log ends at row {len(chain)}: cut off" if chain else "and the log has none of it: removed"
            why = f"row {anchor.number} is in the anchor, {ends}, or this is an older copy or another store"
            differs.setdefault(anchor.session, f"{name}: {why}")
        elif chain[anchor.number - 1] != anchor.chain:
            why = f"row {anchor.number} or an earlier one is not the one in the anchor"
            differs.setdefault(anchor.session, f"{name}: {why}")
        else:
            proven[anchor.session] = max(anchor.number, proven.get(anchor.session, 0))
    return proven, [*differs.values()]


def is_sound(row: AuditRow) -> bool:
    """Return True if the body is canonical JSON with a kind, a time, and the session and number of this row."""
    try:
        entry = entry_of(row.body)
        real(entry.get("at"))
        is_its_own = (entry.get("session"), entry.get("number")) == (row.session_id, row.number)
        return isinstance(entry.get("kind"), str) and is_its_own and canonical(entry) == row.body
    except (ValueError, UnreadableError):
        return False


def _log_name(session: str) -> str:
    return f"session {session}" if session else "the log outside of sessions"


class SinkError(StoreError):
    """The sink has not taken a line."""


def send_head(kind: SinkKind, head: AuditRow) -> None:
    """Send the head of a chain. Blocks for `SINK_TIMEOUT_S` at most. Raises SinkError."""
    anchor = canonical({"session": head.session_id, "number": head.number, "chain": head.chain})
    line = f"<{_PRIORITY}>{_TAG}[{os.getpid()}]: {anchor}"
    if kind == "journald":
        fields = {"MESSAGE": anchor, "PRIORITY": "5", "SYSLOG_IDENTIFIER": _TAG, "SYSLOG_FACILITY": "10"}
        line = "".join(f"{name}={value}\n" for name, value in fields.items())
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(SINK_TIMEOUT_S)
            sender.connect(SINK_SOCKETS[kind])
            sender.send(line.encode())
    except OSError as error:
        why = "it does not answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        place = SINK_SOCKETS[kind]
        raise SinkError(
            f"The site requires that {kind} takes the head of the decision log, and {place} did not: {why}.",
            advice=f"Ask who runs this machine to start {kind}; `audit.sink` in the site registry names it.",
        ) from error
