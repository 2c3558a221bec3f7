"""``chatops audit``: the log of every verdict, decision, start and result, and the proof that nobody changed it."""

import itertools
import subprocess
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from chatops.commands.context import find_session, open_stored, show_list
from chatops.config.paths import write_new_private
from chatops.domain.canonical import canonical
from chatops.domain.decisions import Answered, Approved, Edited, MarkedDone, Recorded, Rejected
from chatops.domain.errors import ConfigError, UnreadableError
from chatops.domain.messages import UserMessage
from chatops.domain.sandbox import NARROWEST
from chatops.domain.wording import plural
from chatops.headless.json_values import dumps
from chatops.headless.screen import screen, when
from chatops.policy.rule_syntax import show_rule
from chatops.policy.sandbox import describe_extra
from chatops.store import audit
from chatops.store.base import AuditRow
from chatops.store.codec import decode_principal, decode_recorded
from chatops.store.store import Store

MAX_LISTED = 1_000
"""Most rows that a list shows, the newest; an export has all."""
SIGNATURE_NAMESPACE = "chatops-audit"
"""The namespace of signatures, ``-n`` of ssh-keygen."""
NOTHING_PROVEN = (
    "This proves nothing: a program that can write the store can write a whole new chain. "
    "Compare it with an earlier export, or the system's log: chatops audit verify --anchor FILE"
)
_STORED_KINDS = {"denied": "rejected"}
"""Kinds of decisions that are stored under another word than the command line has."""


def run(arguments: Namespace) -> int:
    """Print the log (``list``, ``export``), or check its chains (``verify``)."""
    with open_stored(arguments) as opened:
        if arguments.action == "verify":
            return _verify(opened.store, arguments.anchor)
        session = find_session(opened.store, arguments.session).id if arguments.session else None
        rows = opened.store.audit(session_id=session)
        lines = [
            audit.to_line(row, text=_prompt_text(opened.store, row, arguments)) for row in rows if audit.is_sound(row)
        ]
    entries, unsound = list(map(audit.entry_of, lines)), len(rows) - len(lines)
    if arguments.action == "export":
        _say_damaged(unsound)
        return _export([value for value in entries if _is_wanted(value, arguments)], arguments)
    wanted = [value for value in _order_by_time(entries) if _is_wanted(value, arguments)]
    if (left_out := len(wanted) - MAX_LISTED) > 0:
        screen().say(f"{plural(left_out, 'older row is', 'older rows are')} not listed: chatops audit export has all")
    wanted = wanted[-MAX_LISTED:]
    listed = [(value, columns) for value in wanted if (columns := _columns(value)) is not None]
    without_shape = len(wanted) - len(listed)
    _say_damaged(unsound + without_shape)
    values, lines_of_cells = [value for value, _ in listed], [columns for _, columns in listed]
    header = ("AT", "CALL", "TOOL", "BY", "DIGEST", "DECISION")
    return show_list(arguments, values, header, lines_of_cells, empty="The log is empty.")


def _say_damaged(count: int) -> None:
    if count:
        screen().say(f"{plural(count, 'row is', 'rows are')} damaged and left out: chatops audit verify")


def _columns(value: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the columns of an entry; None if it has not the shape of its kind."""
    try:
        names = (value.get("call_id", value["session"]), value.get("tool", value["kind"]))
        digest = value.get("digest", "")[:12]
        cells = (when(value["at"]), *names, _author_words(value), digest, _entry_words(value))
    except audit.SHAPE_ERRORS:
        return None
    return cells if all(isinstance(cell, str) for cell in cells) else None


def _order_by_time(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows by time, those of a session in the order of its chain even if the clock was set back meanwhile."""
    latest: dict[str, float] = {}
    times = []
    for value in entries:
        session = value["session"]
        latest[session] = max(value["at"], latest.get(session, 0.0))
        times.append(latest[session])
    return [value for _, _, value in sorted(zip(times, itertools.count(), entries, strict=False))]


def _prompt_text(store: Store, row: AuditRow, arguments: Namespace) -> str | None:
    """Return the text of the prompt that the row is about, if it is wanted, still stored, and the same."""
    entry = audit.entry_of(row.body)
    if entry.get("kind") != "prompt" or not getattr(arguments, "texts", False):
        return None
    with suppress(UnreadableError):
        message = store.message(entry["message"])
        if isinstance(message, UserMessage) and audit.sha256(message.text) == entry["sha256"]:
            return message.text
    return None


def _export(values: list[dict[str, Any]], arguments: Namespace) -> int:
    """Print or write lines of canonical JSON, and sign the file. Raises ConfigError."""
    if arguments.output is None:
        if arguments.sign is not None:
            raise ConfigError("Nothing was signed: a signature is of a file.", advice="Name it: -o FILE --sign KEY")
        for value in values:
            screen().line(dumps(value))
        return 0
    file = Path(arguments.output)
    data = "".join(f"{dumps(value)}\n" for value in values).encode("ascii")
    files = {file: data}
    if arguments.sign is not None:
        # These bytes are signed, not the file: another user could replace the file before ssh-keygen reads it.
        files[Path(f"{file}.sig")] = _sign(data, arguments.sign, file=file)
    for path, content in files.items():
        write_new_private(path, content)
    if arguments.sign is not None:
        screen().say(f"The signature is in {file}.sig, namespace {SIGNATURE_NAMESPACE}.")
    return 0


def _sign(data: bytes, key: str, *, file: Path) -> bytes:
    command = ["ssh-keygen", "-Y", "sign", "-f", key, "-n", SIGNATURE_NAMESPACE]
    try:
        done = subprocess.run(command, input=data, check=False, capture_output=True)
    except OSError as error:
        advice = "Install OpenSSH." if isinstance(error, FileNotFoundError) else ""
        raise ConfigError(f"{file} is not signed: ssh-keygen: {error.strerror}.", advice=advice) from None
    if done.returncode or not done.stdout:
        why = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no reason given"]
        raise ConfigError(
            f"{file} is not signed: {why[0]}", advice="KEY is a private SSH key, or a public one in an agent."
        )
    return done.stdout


def _verify(store: Store, anchor: str | None) -> int:
    """Report faults of the chains, and what the anchor proves. Returns 1 for a fault. Raises ConfigError."""
    anchors: list[audit.Anchor] = []
    if anchor is not None:
        try:
            anchors = audit.read_anchors(Path(anchor).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"{anchor} cannot be read: {error.strerror}", advice="Name another file.") from None
        except ValueError as error:
            raise ConfigError(f"{anchor} is no anchor: {error}", advice="Use an export, or lines of the log.") from None
    rows = store.audit()
    faults, proven = audit.verify(rows, anchors)
    for fault in faults:
        screen().answer(f"FAULT  {fault}")
    if not faults:
        chains = len({row.session_id for row in rows})
        screen().answer(f"{plural(len(rows), 'row')} in {plural(chains, 'chain')} follow one another.")
        unproven = len(rows) - sum(proven.values())
        if anchors:
            proven_rows = plural(len(rows) - unproven, "row")
            screen().answer(f"{proven_rows} proven by the anchor, {unproven} written after it or not in it.")
        if unproven:
            screen().answer(NOTHING_PROVEN if not anchors else "Nothing is proven about those.")
    return 1 if faults else 0


def _is_wanted(value: Mapping[str, Any], arguments: Namespace) -> bool:
    decision = value.get("decision") if value["kind"] == "decision" else None
    kind = decision.get("kind") if isinstance(decision, dict) else None
    return (
        (arguments.since is None or value["at"] >= arguments.since)
        and (arguments.decision is None or kind == _STORED_KINDS.get(arguments.decision, arguments.decision))
        and (arguments.tool is None or value.get("tool") == arguments.tool)
    )


def _author_words(value: Mapping[str, Any]) -> str:
    """Return the principal of an entry, and the role that wrote it where it is another one."""
    by, writer = value.get("by"), value.get("written_by")
    principal = None if by is None else decode_principal(canonical(by))
    words = [] if principal is None else [str(principal), principal.host, principal.tty]
    if writer and (principal is None or principal.member != writer):
        words.append(f"(written by {writer})")
    return " ".join(filter(None, words))


def _entry_words(value: Mapping[str, Any]) -> str:
    match value["kind"]:
        case "decision":
            return _decision_words(decode_recorded(canonical(value["decision"])), value["tool"])
        case "verdict":
            answered = f", answered by {value['answered_by']}" if "answered_by" in value else ""
            return f"{value['verdict']}: {value.get('why', '')}{answered}"
        case "result":
            return f"{value['outcome']}, attempt {value['attempt']}"
        case "start":
            return f"attempt {value['attempt']}"
        case "trust":
            return f"{value['answer']}: {value['folder']}"
        case "review":
            return str(value["review"].get("review", value["review"])["kind"]).replace("_", " ")
        case "revoked":
            return f"rule {value['rule']}"
        case _:
            return ""


def _decision_words(decision: Recorded, tool: str) -> str:
    match decision:
        case Approved(remember=pattern, scope=scope, extra=extra):
            if pattern is None:
                return "approved" if extra == NARROWEST else f"approved with {describe_extra(extra)}"
            return f"approved, with a rule of scope {scope.value}: {show_rule(tool, pattern)}"
        case Edited(arguments=arguments):
            return f"edited: {arguments}"
        case Rejected(reason=reason):
            return f"denied: {reason}" if reason else "denied"
        case MarkedDone(note=note):
            return f"marked as done: {note}" if note else "marked as done"
        case Answered(action=action, fields=fields, why=why):
            unasked = f" without asking: {why}" if why else ""
            detail = f", sent {', '.join(fields)}" if fields else unasked
            return f"question of the server: {action.value}{detail}"
