"""Kills without a terminal, in `chatops -p` and the commands that resume it, resumed by such commands."""

import json
import re
import time

from chatops.domain.ids import SessionId
from chatops.runtime.descriptions import UNKNOWN_NOTE
from tests.kill.at_screen import HOLDS, approve_elsewhere
from tests.kill.ledger import left_to_say, read, watching
from tests.kill.scene import LeaseRow
from tests.kill.stage import KILLED, Command, Stage
from tests.kill.strikes import Moment, Phase
from tests.kill.verdict import Case, after_the_kill

ENOUGH = 8
"""Commands after which a user would give up."""
PAUSED = 3


def killed(stage: Stage, case: Case) -> None:
    """Begin the turn and let the kill strike; `case.killed` says whether it did."""
    wanted = case.strike
    stage.scene.hold = HOLDS.get(wanted.moment, LeaseRow.NOWHERE) if wanted.moment else LeaseRow.NOWHERE
    stage.scene.holding.clear()
    prompt = ("-p", case.message, *_last(stage, case), "--role", "coder", "--output-format", "stream-json")
    if wanted.phase > Phase.WAITING or wanted.moment is Moment.DECIDING or wanted.point.startswith("in_posting"):
        assert stage.run(*prompt).code == PAUSED
    with watching(stage.file) as seen:
        command = _dying(stage, case, prompt)
        if command.reaches(lambda out: _shows(stage, case, out), what=str(wanted)):
            time.sleep(wanted.delay_s)
            command.kill()
        ran = command.ended()
    case.killed = ran.code == KILLED
    if ran.code not in (KILLED, 0, PAUSED):
        case.other.append(f"ended with {ran.code}: {ran.err}")
    after_the_kill(stage, case, seen[0], ran.out)


def _last(stage: Stage, case: Case) -> tuple[str, ...]:
    fresh = case.strike.point.startswith("after_create") or not _begun(stage)
    return () if fresh else ("-c",)


def _begun(stage: Stage) -> list[SessionId]:
    if not stage.file.exists():
        return []
    with stage.installation.store() as store:
        return [one.id for one in store.sessions()]


def _dying(stage: Stage, case: Case, prompt: tuple[str, ...]) -> Command:
    wanted = case.strike
    if wanted.phase < Phase.WAITING:
        return stage.command(*prompt, point=wanted.point)
    if wanted.phase is Phase.WAITING:
        if wanted.moment is not Moment.DECIDING and not wanted.point.startswith("in_posting"):
            return stage.command(*prompt, point=wanted.point)
        return approve_elsewhere(stage, point=wanted.point)
    assert approve_elsewhere(stage).ended().code == 0
    return stage.command("resume", _begun(stage)[0], "--output-format", "stream-json", point=wanted.point)


def _shows(stage: Stage, case: Case, out: str) -> bool:
    match case.strike.moment:
        case None:
            return False
        case Moment.BEGUN | Moment.DECIDING:
            return True
        case Moment.ASKED:
            return stage.scene.holding.is_set()
        case Moment.STARTED:
            return stage.scene.started(case.number)
        case _:
            return stage.scene.holding.is_set() and "text_delta" in out


def gone_on_with(stage: Stage, case: Case) -> None:
    """Read what is said of what was left, and go on until it is over."""
    wanted = left_to_say(stage.file) if stage.file.exists() else ""
    if wanted:
        listed = stage.run("sessions", "list").out
        if not re.search(rf"effect \d+ by \w+ +.*({wanted})", listed):
            case.untold.append(f"{wanted!r} is not in the list of sessions:\n{listed}")
    asked = False
    for _ in range(ENOUGH):
        stored = read(stage.file)
        if stored is None or case.message not in stored.said:
            go_on = ("-p", case.message, *_last(stage, case), "--role", "coder")
        else:
            go_on = ("resume", _begun(stage)[0])
        ran = stage.run(*go_on)
        if ran.code == 0:
            if f"finished {case.number}." not in ran.out:
                case.other.append(f"it ended with {ran.out!r}")
            break
        if ran.code != PAUSED:
            case.other.append(f"{go_on} ended with {ran.code}: {ran.err}")
            return
        asked = _answers(stage) or asked
    else:
        case.other.append("it does not end")
    if case.unknown and not asked:
        case.untold.append("nobody asked what to tell the model of an unknown outcome")


def _answers(stage: Stage) -> bool:
    """Approve what is asked about; what may have run already is not run again. Whether something was in doubt."""
    doubtful = False
    for one in json.loads(stage.run("approvals", "list", "--output-format", "json").out):
        if one["decision"] is not None:
            continue
        shown = stage.run("approvals", "show", one["id"]).out
        word = "deny" if UNKNOWN_NOTE in shown else "approve"
        doubtful = doubtful or word == "deny"
        done = stage.run("approvals", word, one["id"])
        assert done.code == 0, done.err
    return doubtful
