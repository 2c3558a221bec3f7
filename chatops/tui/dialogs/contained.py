"""The dialog at the end of a contained turn, and of an undo: changes that are applied whole, by file, or not at all.

Everything that is shown comes from the frozen list, and the answer is bound to its digest. Space ticks a file and never
decides. The list of files comes first. In a contained turn all diffs follow, which must be read before anything is
applied. An undo puts the user's own files back, and shows the diff of a file when asked for.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual import events

from chatops.domain.canonical import parsed
from chatops.domain.decisions import Approved, Decision, MarkedDone, Rejected
from chatops.domain.errors import ChatopsError
from chatops.domain.events import AskReason, PendingCall
from chatops.domain.sanitize import sanitize
from chatops.domain.tools import CONTAINED_APPLY, is_undo
from chatops.domain.wording import plural, sentence
from chatops.runtime.denials import denial_sentence
from chatops.runtime.descriptions import UNKNOWN
from chatops.tui.composer.composer import Composer
from chatops.tui.dialogs.changes import ChangesScreen, titled
from chatops.tui.dialogs.dialog_keys import LATER, AnswerKey, DialogKey, Room
from chatops.tui.dialogs.diff_rows import DiffRows, missing_columns
from chatops.tui.dialogs.framed import DialogFrame
from chatops.tui.dialogs.guarded import GuardedDialog
from chatops.tui.dialogs.key_guard import KeyKind
from chatops.tui.dialogs.payload import dialog_theme
from chatops.tui.dialogs.question import Question
from chatops.tui.dialogs.rows import Description, Row, line, read_on
from chatops.tui.keys import KeyGroup, KeyLegend

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chatops.contained.text import Change, ContainedReview
    from chatops.runtime.view import SessionView

_ONLY_UNKNOWN = "That key is for an application whose outcome is unknown."
_IS_UNKNOWN = "It may be half applied: R looks again and finishes, u says unknown, m marks it done."


def asks_about_changes(pending: "Sequence[PendingCall]") -> bool:
    """Return True if what is pending are the changes of a contained turn."""
    return len(pending) == 1 and pending[0].call.name == CONTAINED_APPLY


class ContainedScreen(GuardedDialog):
    """Asks about the changes of a contained turn until they are decided or postponed with Esc."""

    KEYS = (
        AnswerKey(
            "a",
            "apply",
            "apply the ticked changes, once their end has been on screen; an undo at once",
            lambda self: self.apply_label,
            runs=True,
            reads=True,
        ),
        DialogKey("space", "tick", "tick or untick the file; decides nothing", "ticks"),
        DialogKey("enter", "show_diff", "the diff of the file", ("its diff", "diff")),
        DialogKey("tab right", "step_on", "next or previous file", ("next file", "next"), named="Tab, shift+Tab"),
        DialogKey("shift+tab left", "step_back"),
        AnswerKey(
            "d",
            "reject",
            "discard all changes",
            lambda self: ("leave them applied", "leave") if self.undoes else ("discard all", "discard"),
            unknown=None,
        ),
        AnswerKey(
            "D",
            "ask_reason",
            "send them back with a reason; the model goes on in the same copy",
            lambda self: None if self.undoes else "send back with a reason",
            missing="An undo cannot be sent back: d leaves the changes applied.",
        ),
        DialogKey(
            "|",
            "toggle_sides",
            "show the diffs side by side; full screen",
            lambda self: None if self.undoes else self.sides_label,
            named="|, f",
            at_once=True,
        ),
        DialogKey("f", "toggle_full", label=lambda self: self.full_label, at_once=True),
        AnswerKey("R", "approve", label="look again and finish", unknown=True),
        AnswerKey("u", "reject", label="tell the model it is unknown", unknown=True),
        AnswerKey("m", "mark_done", label="mark done", unknown=True),
        DialogKey(
            "escape", "go_back", "decide later: they stay pending", lambda self: "close" if self._sending else LATER
        ),
    )
    DONE: ClassVar[str] = "applied"
    PAGE_KEY: ClassVar[str] = "PgDn"
    KEY_GROUP: ClassVar[KeyGroup] = "contained"

    def __init__(self, session: "SessionView", composer: Composer) -> None:
        super().__init__(composer)
        self._session = session
        self._pending: PendingCall | None = None
        self._changes: ContainedReview | None = None
        self._ticked: set[str] = set()
        self._diffs: dict[str, DiffRows] = {}
        self._index = 0
        self._seen = False

    def begin(self) -> None:
        """Read the changes in a thread."""
        self.refresh_subject()
        self.app.theme_changed_signal.subscribe(self, lambda _: self._colour())

    # Events of the session

    def refresh_subject(self) -> None:
        """Show what is pending now; close the dialog if nothing is."""
        waiting = self._session.snapshot().pending
        if not asks_about_changes(waiting):
            if not self._sending or not waiting:
                self.finish()
            return
        before, self._pending = self._pending, waiting[0]
        if before is not None and before.digest == self._pending.digest and before.denial == self._pending.denial:
            return
        if before is not None:
            self.note_change("The changes differ from those that were shown. Look again.")
        self._changes, self._seen, self._sending = None, False, False
        self.show()
        self.run_worker(self._read(self._pending), group="changes", exclusive=True)

    async def _read(self, pending: PendingCall) -> None:
        try:
            found = await asyncio.to_thread(self._session.contained_changes, pending.call.arguments)
        except (ChatopsError, OSError) as error:
            self.show_note(f"The changes cannot be read: {sanitize(str(error))}")
            return
        if self._pending is pending and self.can_draw:
            self._changes = found
            self._ticked = {one.path for one in found.changes if not one.conflict}
            self._index = 0
            self.pause()
            self._colour()

    def _colour(self) -> None:
        """Show the diffs in the colours of the theme."""
        theme, found = dialog_theme(self.app), self._changes.changes if self._changes is not None else ()
        self._diffs = {one.path: DiffRows(one.diff, name=one.path, theme=theme) for one in found}
        self.show()

    # Keys

    def scrolled(self, key: str) -> bool:
        """Scroll if the key scrolls. In the list of an undo, arrows go to another file. Space ticks."""
        by = {"up": -1, "k": -1, "down": 1, "j": 1}.get(key, 0) if self.undoes else 0
        if by:
            self._step(by)
        return bool(by) or (key != "space" and super().scrolled(key))

    def _step_on(self) -> None:
        self._step(1)

    def _step_back(self) -> None:
        self._step(-1)

    def _step(self, by: int) -> None:
        """Go to another file: in the list while that is on the screen, else from diff to diff."""
        if self._changes is None or self._pending is None or not self._changes.changes:
            return
        count = len(self._changes.changes)
        self._index = (self._index + by) % count
        self._note = ""
        self.show()
        start = len(tuple(self._about(self._pending, self._changes)))
        if self.payload.top_row >= start + count:
            self._show_diff()
        else:
            self.payload.keep_row(start + self._index)
            self.call_after_refresh(self.show_frame)

    def _show_diff(self) -> None:
        """Scroll to the diff of the file. An undo shows it on a page."""
        if self._changes is None or not self._changes.changes:
            return
        if self.undoes:
            one = self._changes.changes[self._index]
            page = ChangesScreen("The undo", (one,), note="This is what the undo changes.")
            self.app.push_screen(page, lambda typed: self.on_paste(events.Paste(typed)) if typed else None)
            return
        # The first heading names the role.
        headings = [at for at, row in enumerate(self._rows()) if row.tone == "heading"]
        self.payload.show_row(headings[self._index + 1])
        self.call_after_refresh(self.show_frame)

    def on_resize(self) -> None:
        """Leave side by side where there is no room for it."""
        super().on_resize()
        if self._side_by_side and missing_columns(self.size.width):
            self._toggle_sides()

    def _tick(self) -> None:
        if self._changes is None or not self._changes.changes:
            return
        one = self._changes.changes[self._index]
        if one.conflict:
            self._note = "This file is in conflict and stays as it is."
        else:
            self._ticked ^= {one.path}
            self._note = ""
        self.show()

    # Answers

    def answer(self, key: DialogKey) -> None:
        """Handle a key of the table."""
        if key.kind >= KeyKind.DENY and self._changes is None:
            self.not_taken("the changes are not on the screen yet")
        else:
            super().answer(key)

    def why_not(self, key: DialogKey) -> str:
        """Return why the key does not apply to these changes."""
        pending = self._pending
        if pending is None or not isinstance(key, AnswerKey):
            return ""
        if key.unknown is not None and key.unknown != pending.outcome_unknown:
            return _ONLY_UNKNOWN if key.unknown else _IS_UNKNOWN
        if key.runs and pending.denial is not None and not pending.outcome_unknown:
            return denial_sentence(pending.denial)
        return super().why_not(key)

    @property
    def is_read(self) -> bool:
        """True if the changes may be applied: all was on the screen, or they are the user's own undo."""
        return self._seen or self.undoes

    def _apply(self) -> None:
        found = self._changes.changes if self._changes is not None else ()
        able = tuple(one.path for one in found if not one.conflict)
        ticked = tuple(path for path in able if path in self._ticked)
        if ticked:
            self._decide(Approved(only=None if ticked == able else ticked))
        else:
            rest = "d leaves the changes applied." if self.undoes else "d discards all changes."
            self.show_note(f"Nothing is ticked. {rest}")

    def _reject(self) -> None:
        self._decide(Rejected())

    def _approve(self) -> None:
        self._decide(Approved())

    def _mark_done(self) -> None:
        self._decide(MarkedDone())

    def _ask_reason(self) -> None:
        asked = self._pending

        def done(decision: Decision | None) -> None:
            if decision is not None and self._pending is asked:
                self._decide(decision)

        question = Question[Decision](
            "Send the changes back",
            explain="Nothing is applied or discarded. The model is told why, and goes on in the same copy.",
            text="",
            check=lambda text: Rejected(reason=text.strip(), send_back=True),
            done="sends them back",
            enter_answers=True,
        )
        self.app.push_screen(question, done)

    def _decide(self, decision: Decision) -> None:
        if self._pending is not None:
            self.send(self._store_decision(self._pending, decision))

    async def _store_decision(self, asked: PendingCall, decision: Decision) -> str:
        taken = await self._session.decide(asked.call.id, digest=asked.digest, decision=decision)
        return "" if taken else "The changes no longer wait for this decision."

    @property
    def apply_label(self) -> str:
        """How much `a` applies."""
        able = sum(not one.conflict for one in self._changes.changes) if self._changes is not None else 0
        return f"{'undo' if self.undoes else 'apply'} {len(self._ticked)} of {able}"

    # Drawing

    @property
    def undoes(self) -> bool:
        """True if they are the undo of an earlier answer."""
        return self._pending is not None and is_undo(self._pending.call.arguments)

    def show(self) -> None:
        """Draw the list and the diffs."""
        pending = self._pending
        if pending is None or not self.can_draw:
            return
        self.set_class(self._side_by_side, "-wide")
        rows = tuple(self._rows())
        key = f"{pending.call.id} {pending.digest}" if self._changes is not None else ""
        self.show_subject(Description(rows=rows, payload=len(rows)), key=key, seen=self._seen)

    def _rows(self) -> "Iterator[Row]":
        pending, found = self._pending, self._changes
        if pending is None or found is None:
            yield Row(text="Reading the changes…", tone="quiet")
            return
        yield from self._about(pending, found)
        yield from (self._listed(one) for one in found.changes)
        yield Row()
        for text in found.notes:
            yield Row(text=line(text), tone="code", exact=True)
        for one in () if self.undoes else found.changes:
            yield replace(self._listed(one), tone="heading")
            if one.conflict:
                yield Row(text=line(f"In conflict, stays as it is: {one.conflict}"), tone="caution")
            for text in one.lines:
                yield Row(text=line(text), tone="code", exact=True)
            yield from self._diffs[one.path].rows(side_by_side=self._side_by_side)
            yield Row()

    def _about(self, pending: PendingCall, found: "ContainedReview") -> "Iterator[Row]":
        """Yield the rows above the list of files."""
        yield Row(text=f"Role {line(pending.role)}: {line(found.head)}", tone="heading")
        if pending.outcome_unknown:
            yield Row(text=UNKNOWN, tone="caution")
        if pending.denial is not None:
            yield Row(text=line(denial_sentence(pending.denial)), tone="caution")
        if pending.reason is not AskReason.POLICY or (_list_number(pending) > 1 and not self.undoes):
            yield Row(text=line(sentence(pending.why)), tone="caution")
        yield Row()

    def _listed(self, one: "Change") -> Row:
        """Return the line of a file in the list."""
        pointed = self._changes is not None and self._changes.changes[self._index] is one
        tick = "!" if one.conflict else "x" if one.path in self._ticked else " "
        stays = f"  stays as it is: {line(one.conflict)}" if one.conflict else ""
        text = f"{titled(one, self._diffs[one.path])}{stays}"
        lead = f"{'>' if pointed else ' '} [{tick}] "
        return Row(text=text, lead=lead, exact=True, tone="caution" if one.conflict else "code")

    def frame(self) -> DialogFrame | None:
        """Return the heading."""
        if (pending := self._pending) is None:
            return None
        narrow = self.has_class("-narrow")
        apply = "Apply these changes?" if narrow else "Apply the changes of this turn?"
        asks = "Undo these changes?" if self.undoes else apply
        title = asks if pending.denial is None else "Not permitted now: these changes"
        return DialogFrame(title=title)

    @property
    def unread(self) -> str:
        """What `a` does until all changes were read."""
        skipped, below = self.payload.lines_skipped, self.payload.lines_below
        if self.is_read:
            return ""
        if self.room is Room.USUAL:
            left = f"{plural(skipped, 'line')} above not shown" if skipped else f"{plural(below, 'more line')} below"
            return f"read on first: {left}"
        return read_on(skipped or below, short=True)

    def legend(self, unread: str) -> KeyLegend:
        """Return the legend of keys."""
        pending, usual = self._pending, Room.USUAL
        if self._changes is None or self._sending or pending is None:
            return self.hints("escape", room=usual)
        if pending.outcome_unknown:
            return self.hints("R u m escape", room=usual)
        if pending.denial is not None:
            return self.hints("d D escape", room=usual)
        match self.room:
            case Room.LOWEST:
                return self.hints("a d f1", unread=unread and "read on", room=Room.LOWEST)
            case Room.NARROW:
                return self.hints("a d space tab enter f1 escape", unread=unread)
            case Room.USUAL:
                return self.hints("a space tab enter", "d D escape", "| f", unread=unread)

    def end_read(self, subject: str) -> None:
        """Allow applying, now that the end of the changes has been on screen."""
        pending = self._pending
        if pending is not None and subject == f"{pending.call.id} {pending.digest}" and not self.too_small:
            self._seen = True


def _list_number(pending: PendingCall) -> int:
    """Return which list of its turn this is: 2 after the first one was sent back."""
    given = parsed(pending.call.arguments)
    number = given.get("list") if isinstance(given, Mapping) else None
    return number if isinstance(number, int) else 1
