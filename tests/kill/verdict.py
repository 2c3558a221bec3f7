"""Criteria for a kill and its aftermath."""

import re
from dataclasses import dataclass, field

from chatops.domain.ids import TurnId
from chatops.domain.messages import UserMessage
from chatops.domain.tools import Outcome
from chatops.store.audit import entry_of, verify
from chatops.store.base import JournalRow
from tests.e2e.installation import answers_each_call_once
from tests.kill.ledger import Ledger, read
from tests.kill.scene import REPEATABLE
from tests.kill.stage import Stage
from tests.kill.strikes import Strike
from tests.store.storekit import problems
from tests.support.fake_openai import SeenRequest
from tests.support.figures import Count

TOOLS = {"shell": "shell_exec", "edit": "file_edit", "write": "file_write", "note": "note_down"}


@dataclass(slots=True, kw_only=True)
class Case:
    """One kill, and what was found out."""

    strike: Strike
    kind: str
    number: int
    killed: bool = False
    twice: list[str] = field(default_factory=list)
    """An effect that occurred more than once, or a second attempt that nobody asked for."""
    lost: list[str] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    unknown: bool = False
    """True if an attempt of unknown outcome was under way."""
    untold: list[str] = field(default_factory=list)
    """Expected part of the resume summary that was missing."""
    other: list[str] = field(default_factory=list)
    """Effects or messages that are missing, programs that failed."""

    @property
    def message(self) -> str:
        """What the user says."""
        return f"effect {self.number} by {self.kind}"

    @property
    def next_message(self) -> str:
        """What the user says meanwhile, where a message is kept."""
        return f"effect {self.number + 1} by {self.kind}"

    @property
    def faults(self) -> list[str]:
        """All that must not be."""
        found = (*self.twice, *self.lost, *self.damage, *self.refused, *self.untold, *self.other)
        return [f"{self.strike}, {self.message}: {fault}" for fault in found]

    def add_to(self, figure: Count) -> None:
        """Count it among all kills."""
        figure("effects > 1 (kills)", bad=bool(self.twice), of=1)
        figure("acknowledged rows lost (kills)", bad=len(self.lost), of=1)
        figure("integrity failures (kills)", bad=bool(self.damage), of=1)
        figure("sessions refused by a strict server (kills)", bad=bool(self.refused), of=1)
        if self.unknown:
            figure("outcome unknown not told (kills)", bad=bool(self.untold), of=1)


def after_the_kill(stage: Stage, case: Case, seen: Ledger, shown: str) -> None:
    """Compare the store with what another process had read of it, and with what was shown or printed."""
    now = read(stage.file)
    if now is None:
        return
    case.lost += seen.missing_in(now)
    said = {text.strip() for text in now.said | now.kept}
    case.lost += [text for text in re.findall(r"▌ (effect \d+ by \w+)$", shown, re.MULTILINE) if text not in said]
    for text in (case.message, case.next_message):
        sent = text in now.said | now.kept
        if text in seen.drafts and text not in now.drafts and not sent:
            case.lost.append(f"draft {text!r}")
        if text in now.drafts and sent:
            case.twice.append(f"{text!r} is sent, and a draft")
    result = re.findall(r'"type": "(turn_started|tool_finished)", "id": "([^"]+)"', shown)
    stored = {*now.steps, *(call for call, _ in now.ended)}
    case.lost += [f"{what} {which}" for what, which in result if which not in stored]
    with stage.installation.store() as store:
        case.damage += problems(store)
    case.damage += faults_of_log(stage)
    # An attempt of which nobody knows the end, at a tool that cannot look.
    rows = [row for row in journal(stage) if row.outcome is None]
    case.unknown = any(row.tool not in REPEATABLE for row in rows)


def in_the_end(stage: Stage, case: Case, before: int) -> None:
    """Compare what took effect with what is stored, once the turn is over; `before`: requests before all of it."""
    rows = [row for row in journal(stage) if row.tool == TOOLS[case.kind] and _about(row, case.number)]
    count = stage.scene.count(case.number, case.kind)
    if count > 1:
        case.twice.append(f"took effect {count} times")
    unasked = [row for row in rows[:-1] if row.outcome is not Outcome.INTERRUPTED or row.tool not in REPEATABLE]
    case.twice += [f"attempted again after {row}" for row in unasked]
    last = rows[-1].outcome if rows else None
    if count == 0 and last is not Outcome.UNKNOWN and not _replaced(stage, case):
        case.other.append(f"no effect, and the outcome is {last}")
    if last is None:
        case.other.append(f"no outcome: {rows}")
    with stage.installation.store() as store:
        case.damage += problems(store)
        said = [message for info in store.sessions() for message in store.history(info.id)]
        case.other += [f"still waits: {one}" for one in store.pending_calls()]
    case.damage += faults_of_log(stage)
    times = sum(isinstance(message, UserMessage) and message.text == case.message for message in said)
    if times != 1:
        case.other.append(f"the message is there {times} times")
    requests = stage.scene.server.requests[before:]
    case.refused += stage.scene.server.violations
    case.refused += ["a call without its answer" for one in requests if not answers_each_call_once(one)]
    if not any(_tells_result(one, case) for one in requests):
        case.other.append("the model was never told what came of it")


def journal(stage: Stage) -> list[JournalRow]:
    """Every attempt, in order."""
    with stage.installation.store() as store:
        turns = {
            turn
            for info in store.sessions()
            for message in store.history(info.id)
            if (turn := TurnId(message.id.rpartition(".m")[0]))
        }
        active = {info.active_turn for info in store.sessions() if info.active_turn is not None}
        rows = [row for turn in turns | active for row in store.journal(turn)]
    return sorted(rows, key=lambda row: (row.started_at, row.attempt))


def faults_of_log(stage: Stage) -> list[str]:
    """Return what the audit log lacks, or has too much, of what is stored about the calls; empty if it is right."""
    with stage.installation.store() as store:
        rows = store.audit()
        decided: set[tuple[object, object]] = {(row.call_id, row.digest) for row in store.decisions(limit=10_000)}
    faults, _ = verify(rows, ())
    logged: dict[str, set[tuple[object, object]]] = {"start": set(), "result": set(), "decision": set()}
    asked, answered = set[tuple[object, object]](), set[tuple[object, object]]()
    for entry in (entry_of(row.body) for row in rows):
        call, digest = entry.get("call_id"), entry.get("digest")
        match entry["kind"]:
            case "verdict":
                asked.add((call, digest))
                answered |= {(call, digest)} if entry["verdict"] == "allow" else set()
            case "decision" if entry["decision"]["kind"] in ("approved", "edited"):
                answered |= {(call, digest)} & asked
            case "start" if (call, digest) not in answered and entry["attempt"] == 1:
                faults.append(f"{call} starts before a row that permits it")
        if (kind := entry["kind"]) in logged:
            logged[kind].add((call, digest if kind == "decision" else entry["attempt"]))
    attempts = journal(stage)
    stored: dict[str, set[tuple[object, object]]] = {
        "start": {(row.call_id, row.attempt) for row in attempts},
        "result": {(row.call_id, row.attempt) for row in attempts if row.outcome is not None},
        "decision": decided,
    }
    for kind, found in logged.items():
        if found != stored[kind]:
            faults.append(f"rows of kind {kind} differ from what is stored: {found ^ stored[kind]}")
    return faults


def _about(row: JournalRow, number: int) -> bool:
    return re.search(rf"(?<![\d.]){number}(?!\d)", row.arguments) is not None


def _replaced(stage: Stage, case: Case) -> bool:
    return case.kind == "write" and (stage.installation.workspace / f"written-{case.number}.txt").exists()


def _tells_result(request: SeenRequest, case: Case) -> bool:
    return request.last_user == case.message and request.messages[-1]["role"] == "tool"
