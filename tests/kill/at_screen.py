"""Kills in the chat on a terminal, resumed there as a user would: nothing that may have run runs again."""

import re
import time

from tests.e2e.installation import APPROVE, PAUSES
from tests.faults.entry_points import flat
from tests.kill.ledger import Ledger, left_to_say, read, watching
from tests.kill.scene import LeaseRow
from tests.kill.stage import EMPTY, KILLED, UNKNOWN, Command, KilledChat, Stage, StuckError
from tests.kill.strikes import Moment
from tests.kill.verdict import Case, after_the_kill

HOLDS = {Moment.ASKED: LeaseRow.SILENT, Moment.TEXT: LeaseRow.TEXT, Moment.ANSWER: LeaseRow.ANSWER}
AGAIN_S = 3.0
"""A user does not press the same key again before that."""
DRAFT_S = 1.0
"""Text typed this long ago is stored, although it was not sent."""


def killed(stage: Stage, case: Case) -> None:
    """Begin the turn and let the kill strike; `case.killed` says whether it did."""
    wanted = case.strike
    stage.scene.hold = HOLDS.get(wanted.moment, LeaseRow.NOWHERE) if wanted.moment else LeaseRow.NOWHERE
    stage.scene.holding.clear()
    begin = () if wanted.point.startswith("after_create") else ("-c",)
    with stage.chat(*begin, point=wanted.point) as terminal, watching(stage.file) as seen:
        if _comes_to_it(stage, case, terminal):
            time.sleep(wanted.delay_s)
            terminal.kill9()
        code = terminal.wait_exit()
        case.killed = code == KILLED
        shown = terminal.text()
    if not case.killed:
        case.other.append(f"ended with {code}: {shown}")
    after_the_kill(stage, case, seen[0], shown)


def _comes_to_it(stage: Stage, case: Case, terminal: KilledChat) -> bool:
    """Return True once the moment has come; False if the process died before, at its failpoint."""
    moment = case.strike.moment
    if not terminal.reaches(lambda text: "coder · " in text and EMPTY in text, what="the chat"):
        return False
    terminal.send(case.message)
    if not terminal.reaches(lambda text: case.message in text, what="the message"):
        return False
    if moment is Moment.TYPED:
        return True
    if case.number % 4 == 1 and not _is_draft(stage, case.message, terminal):
        return False
    terminal.press("enter")
    if moment is Moment.KEPT:
        return _keeps_another(stage, case, terminal)
    if moment in (Moment.ASKED, Moment.TEXT):
        return terminal.reaches(lambda text: _shows(stage, moment, text), what=moment)
    if not terminal.reaches(lambda text: APPROVE in text, what="the dialog"):
        return False
    if moment is Moment.DIALOG:
        return True
    if moment is Moment.DECIDING:
        approving = approve_elsewhere(stage)
        code = approving.ended().code
        return code == 0 or not terminal.reaches(lambda text: False, what="the end")
    terminal.press("a")
    pressed = time.monotonic()

    def holds(text: str) -> bool:
        nonlocal pressed
        if APPROVE in text and time.monotonic() > pressed + AGAIN_S:
            pressed = time.monotonic()
            terminal.press("a")
        if moment is None:
            return f"finished {case.number}." in text
        if moment is Moment.OVER:
            return f"finished {case.number}." in text and "working" not in text
        return stage.scene.started(case.number) if moment is Moment.STARTED else _shows(stage, moment, text)

    return terminal.reaches(holds, what=str(moment))


def _shows(stage: Stage, moment: Moment | None, text: str) -> bool:
    words = {Moment.TEXT: "I will do it", Moment.ANSWER: "Nearly it"}
    return stage.scene.holding.is_set() and (moment not in words or words[moment] in text)


def _is_draft(stage: Stage, text: str, terminal: KilledChat) -> bool:
    """Wait until what was typed is stored, as if the user had paused before sending it."""
    return terminal.reaches(lambda _: text in (read(stage.file) or Ledger()).drafts, what=f"the draft {text!r}")


def _keeps_another(stage: Stage, case: Case, terminal: KilledChat) -> bool:
    """A second message is kept while the call of the first waits; the kill strikes when it is sent."""
    if not terminal.reaches(lambda text: APPROVE in text, what="the dialog"):
        return False
    terminal.press("escape")
    if not terminal.reaches(lambda text: "pending – ctrl+g" in text, what="the banner"):
        return False
    terminal.send(case.next_message)
    if case.number % 4 == 1 and not _is_draft(stage, case.next_message, terminal):
        return False
    terminal.press("enter")
    if not terminal.reaches(lambda text: "Queued until" in text, what="the message to be queued"):
        return False
    terminal.press("ctrl+g")
    if not terminal.reaches(lambda text: APPROVE in text, what="the dialog again"):
        return False
    terminal.press("a")
    return terminal.reaches(lambda text: f"finished {case.number + 1}." in text, what="its point")


def approve_elsewhere(stage: Stage, *, point: str = "") -> Command:
    """In another terminal: approve what waits."""
    with stage.installation.store() as store:
        (waiting,) = store.pending_calls()
    return stage.command("approvals", "approve", waiting.pending.call.id, point=point)


def gone_on_with(stage: Stage, case: Case) -> None:
    """Start again, read what is said of what was left, and go on until it is over."""
    wanted = left_to_say(stage.file) if stage.file.exists() else ""
    last = case.number + (case.strike.moment is Moment.KEPT)
    with stage.chat(*([] if wanted else ["-c"])) as terminal:
        terminal.reaches(lambda text: "coder · " in text, what="the chat")
        if wanted:
            _reads_what_was_left(case, terminal, wanted)
            terminal.press("ctrl+g")
            terminal.reaches(lambda text: _is_open(case, text), what="the conversation that was left")
        elif case.strike.moment is Moment.TYPED and case.strike.delay_s > DRAFT_S:
            terminal.reaches(lambda text: case.message in text, what="the draft")
        _finishes(case, terminal, last)


def _reads_what_was_left(case: Case, terminal: KilledChat, wanted: str) -> None:
    line = re.compile(rf"Unfinished: .*({wanted}).* \(session \"effect \d+ by \w+\"\).* – ctrl\+g")
    try:
        terminal.reaches(lambda text: line.search(flat(text)) is not None, what=wanted)
    except StuckError as error:
        case.untold.append(str(error))


def _is_open(case: Case, text: str) -> bool:
    return f"▌ {case.message}" in text or APPROVE in text or UNKNOWN in text


def _finishes(case: Case, terminal: KilledChat, last: int) -> None:
    pressed = 0.0
    asked = sent = False

    def holds(text: str) -> bool:
        nonlocal pressed, asked, sent
        if PAUSES in text:
            return False
        if UNKNOWN in text or APPROVE in text:
            asked = asked or UNKNOWN in text
            if time.monotonic() > pressed + AGAIN_S:
                pressed = time.monotonic()
                terminal.press("u" if UNKNOWN in text else "a")
            return False
        # A dialog that does not act yet passes what is typed on to the composer.
        if any(word in text for word in ("working", "waiting", "pending", "opening")):
            return False
        if f"finished {last}." in text:
            return True
        if f"▌ {case.message}" not in text and not sent:
            sent = True
            if EMPTY in text:
                terminal.send(case.message)
            terminal.press("enter")
        return False

    terminal.reaches(holds, what=f"finished {last}")
    if case.unknown and not asked:
        case.untold.append("nobody asked what to tell the model of an unknown outcome")
