"""The dialog at the end of a contained turn, and of an undo: changes that are applied whole, by file, or not at all.

A contained turn has worked in a copy of the folder. At its end, its changes are listed once; this list does not change.
Everything that is shown comes from the list, and the answer is bound to its digest. Space ticks a file and never
decides. The list of files comes first. In a contained turn all diffs follow, which must be read before anything is
applied. An undo puts the user's own files back, and shows the diff of a file when asked for.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import events

from chatops.domain.canonical import parse_json
from chatops.domain.decisions import Approved, Decision, MarkedDone, Rejected
from chatops.domain.errors import ChatopsError
from chatops.domain.events import AskReason, PendingCall
from chatops.domain.sanitize import sanitize
from chatops.domain.tools import CONTAINED_APPLY, is_undo
from chatops.domain.wording import plural, sentence
from chatops.runtime.call_facts import asked_by
from chatops.runtime.descriptions import UNKNOWN_NOTE, denial_sentence
from chatops.tui.composer import Composer
from chatops.tui.dialogs.body import DialogFrame
from chatops.tui.dialogs.changes import ChangesScreen, change_title
from chatops.tui.dialogs.dialog_keys import LATER, AnswerKey, Answers, DialogKey, Room
from chatops.tui.dialogs.guarded import GuardedDialog
from chatops.tui.dialogs.key_gate import KeyKind
from chatops.tui.dialogs.question import Question
from chatops.tui.dialogs.rows import Description, DiffRows, Row, line, read_on_label, too_narrow_for_sides
from chatops.tui.keys import KeyGroup, KeyLegend
from chatops.tui.theme import BlockTheme, theme_of

if TYPE_CHECKING:
    from chatops.contained.text import Change, ContainedReview
    from chatops.runtime.view import SessionView

_ONLY_FOR_UNKNOWN = "That key is for an application whose outcome is unknown."
_UNKNOWN_NOTE = "It may be half applied: R looks again and finishes, u says unknown, m marks it done."
DIFFER = "The changes differ from those that were shown. Look again."
_REREAD_S = 1.0
"""Least seconds between two reads of the changes. With more, a file that has got into conflict is shown later."""
NOT_SENT_BACK = "An undo cannot be sent back: d leaves the changes applied."
IN_CONFLICT = "This file is in conflict and stays as it is."


def about_contained(pending: Sequence[PendingCall]) -> list[PendingCall]:
    """Return those pending calls that are about changes of a contained turn: of the session's, or of its children's."""
    return [call for call in pending if call.call.name == CONTAINED_APPLY]


class ContainedScreen(GuardedDialog):
    """Asks about the changes of a contained turn until they are decided or postponed with Esc."""

    KEYS = (
        AnswerKey(
            "a",
            "apply",
            "apply the ticked changes, once their end has been on screen; an undo at once",
            lambda self: self.apply_label,
            runs=True,
            needs_reading=True,
        ),
        DialogKey("space", "tick", "tick or untick the file; decides nothing", "ticks"),
        DialogKey(
            "enter",
            "show_diff",
            "the diff of the file",
            lambda self: ("opens its diff" if self.undoes else "goes to its diff", "diff"),
        ),
        DialogKey("tab right", "go_next", "next or previous file", ("next file", "next"), named="Up, Down, Tab"),
        DialogKey("shift+tab left", "go_previous"),
        AnswerKey(
            "d",
            "reject",
            "discard all changes",
            lambda self: ("leave them applied", "leave") if self.undoes else ("discard all", "discard"),
        ),
        AnswerKey(
            "D",
            "ask_reason",
            "send them back with a reason; the model continues in the same copy",
            lambda self: None if self.undoes else "send back with a reason",
            missing=NOT_SENT_BACK,
        ),
        DialogKey(
            "|",
            "toggle_sides",
            "show the diffs side by side; full screen",
            lambda self: None if self.undoes else self.body.sides_label,
            named="|, f",
            at_once=True,
        ),
        DialogKey("f", "toggle_full", label=lambda self: self.body.full_label, at_once=True),
        AnswerKey(
            "R",
            "approve",
            label=lambda self: None if self.is_denied else "look again and finish",
            runs=True,
            answers=Answers.OUTCOME_UNKNOWN,
        ),
        AnswerKey("u", "reject", label="tell the model it is unknown", answers=Answers.OUTCOME_UNKNOWN),
        AnswerKey("m", "mark_done", label="mark done", answers=Answers.OUTCOME_UNKNOWN),
        DialogKey(
            "escape", "go_back", "decide later: they stay pending", lambda self: "close" if self.sending else LATER
        ),
    )
    DONE: ClassVar[str] = "applied"
    PAGE_KEY: ClassVar[str] = "PgDn"
    KEY_GROUP: ClassVar[KeyGroup] = "contained"

    def __init__(self, session: "SessionView", composer: Composer, *, unticked: set[tuple[str, str]]) -> None:
        """Ask about changes of `session`. `unticked` is kept from dialog to dialog: what was asked, and the path."""
        super().__init__(composer)
        self._session = session
        self._unticked = unticked
        self._pending: PendingCall | None = None
        """The call that is asked about; None before the first one was found."""
        self._review: ContainedReview | None = None
        """Its changes; None until they are read."""
        self._diffs: dict[str, DiffRows] = {}
        """The diff of each change, by its path."""
        self._headings: tuple[int, ...] = ()
        """The row above the diff of each change."""
        self._index = 0
        """The index of the change that the keys are about."""
        self._end_seen = False
        """True once all of `_review` was on the screen."""

    def begin(self) -> None:
        """Read the changes in a thread."""
        self.refresh_subject()
        self.app.theme_changed_signal.subscribe(self, lambda _: self._redraw_diffs())

    @property
    def _changes(self) -> "Sequence[Change]":
        return self._review.changes if self._review is not None else ()

    @property
    def _applicable(self) -> tuple[str, ...]:
        return tuple(change.path for change in self._changes if not change.conflict)

    @property
    def _ticked(self) -> tuple[str, ...]:
        return tuple(path for path in self._applicable if (self._asked, path) not in self._unticked)

    @property
    def _asked(self) -> str:
        """The name of exactly what is asked about."""
        return f"{self._pending.call.id} {self._pending.digest}" if self._pending is not None else ""

    # Events of the session

    def refresh_subject(self) -> None:
        """Show what is pending now; close the dialog if nothing is."""
        pending = self._session.snapshot().pending
        if not (waiting := about_contained(pending)):
            if not self.sending or not pending:
                self.finish()
            return
        before = self._pending
        same_call = (call for call in waiting if before is not None and call.call.id == before.call.id)
        self._pending = next(same_call, waiting[0])
        if before is not None and before.digest == self._pending.digest and before.denial == self._pending.denial:
            return
        if before is not None:
            other = "These changes are of another task."
            self.note_change(DIFFER if before.call.id == self._pending.call.id else other)
        self._review, self._end_seen, self.sending = None, False, False
        self.show()
        self._start_reading(self._pending)

    def _start_reading(self, pending: PendingCall) -> None:
        if self._is_shown(pending):
            self.run_worker(self._read_changes(pending), group="changes", exclusive=True)

    def _is_shown(self, pending: PendingCall) -> bool:
        return self.can_draw and self._pending is not None and self._pending.digest == pending.digest

    async def _read_changes(self, pending: PendingCall) -> None:
        """Read the changes, and again while they wait: other changes of the folder put some in conflict."""
        began = time.monotonic()
        try:
            review = await asyncio.to_thread(self._session.contained_changes, pending.call.arguments)
        except (ChatopsError, OSError) as error:
            self.show_note(f"The changes cannot be read: {sanitize(str(error))}")
            return
        if self._is_shown(pending) and not self.sending and review != self._review:
            self._show_review(review)
        # Many changes, which take long to read, are read less often.
        self.set_timer(max(_REREAD_S, 10 * (time.monotonic() - began)), partial(self._start_reading, pending))

    def _show_review(self, review: "ContainedReview") -> None:
        """Show the changes that were read. Files that the user has unticked stay so; all others are ticked."""
        if self._review is None:
            self.pause()
        else:
            self.note_change(DIFFER)
        self._review, self._index, self._end_seen = review, 0, False
        self._redraw_diffs()

    def _redraw_diffs(self) -> None:
        self._diffs = coloured_diffs(self._changes, theme_of(self.app))
        self.show()

    # Keys

    def scroll_by_key(self, key: str) -> bool:
        """Scroll if the key scrolls. In the list, arrows go to another file, and scroll from its ends. Space ticks."""
        by = {"up": -1, "down": 1}.get(key, 0)
        if self.undoes:
            by = {"k": -1, "j": 1}.get(key, by)
        elif self.payload.line_in_view(self._listed_row) is None or not 0 <= self._index + by < len(self._changes):
            by = 0
        if by:
            self._go_to_file(by)
        return bool(by) or (key != "space" and super().scroll_by_key(key))

    def _go_next(self) -> None:
        self._go_to_file(1)

    def _go_previous(self) -> None:
        self._go_to_file(-1)

    def _go_to_file(self, by: int) -> None:
        """Go `by` files on: in the list while that is on the screen, else from diff to diff."""
        if self._review is None or self._pending is None or not self._changes:
            return
        self._index = (self._index + by) % len(self._changes)
        self.note = ""
        self.show()
        if self.payload.top_row >= self._list_start + len(self._changes):
            self._show_diff()
        else:
            self.payload.keep_row(self._listed_row)
            self.call_after_refresh(self.show_frame)

    @property
    def _list_start(self) -> int:
        """The row of the first file in the list."""
        if self._pending is None or self._review is None:
            return 0
        return len(tuple(about_changes(self._pending, self._review)))

    @property
    def _listed_row(self) -> int:
        """The row of the file that keys act on, in the list."""
        return self._list_start + self._index

    @property
    def pointed_row(self) -> int:
        """The row of the file that keys act on: above its diff if it is not in view in the list."""
        is_listed = self._is_listed and self.payload.line_in_view(self._listed_row) is not None
        return self._listed_row if is_listed or not self._headings else self._headings[self._index]

    @property
    def _is_listed(self) -> bool:
        """True if there is a list. One file is named above its diff only."""
        return self.undoes or len(self._changes) > 1

    def _show_diff(self) -> None:
        """Scroll to the diff of the file. An undo shows it on a page."""
        if not self._changes:
            return
        if self.undoes:
            shown = (self._changes[self._index],)
            page = ChangesScreen("The undo", shown, note="This is what the undo changes.")
            self.app.push_screen(page, lambda typed: self.on_paste(events.Paste(typed)) if typed else None)
            return
        self.payload.show_row(self._headings[self._index])
        self.call_after_refresh(self.show_frame)

    def on_resize(self) -> None:
        """Leave side by side where there is no room for it."""
        super().on_resize()
        if self.body.side_by_side and too_narrow_for_sides(self.size.width):
            self._toggle_sides()

    def _tick(self) -> None:
        if not self._changes:
            return
        change = self._changes[self._index]
        if change.conflict:
            self.note = IN_CONFLICT
        else:
            self._unticked ^= {(self._asked, change.path)}
            self.note = ""
        self.show()

    # Answers

    def answer(self, key: DialogKey) -> None:
        """Handle a key of the table."""
        if key.kind >= KeyKind.DENY and self._review is None:
            self.not_taken("the changes are not on the screen yet")
        else:
            super().answer(key)

    def why_not(self, key: DialogKey) -> str:
        """Return why the key does not apply to these changes."""
        pending = self._pending
        if pending is None or not isinstance(key, AnswerKey):
            return ""
        if not key.answers.includes(outcome_unknown=pending.outcome_unknown):
            return _UNKNOWN_NOTE if pending.outcome_unknown else _ONLY_FOR_UNKNOWN
        if key.runs and pending.denial is not None:
            return denial_sentence(pending.denial)
        return super().why_not(key)

    @property
    def is_read(self) -> bool:
        """True if the changes may be applied: all was on the screen, or they are the user's own undo."""
        return self._end_seen or self.undoes

    def _apply(self) -> None:
        if ticked := self._ticked:
            self._decide(Approved(only=None if ticked == self._applicable else ticked))
        else:
            instead = "d leaves the changes applied." if self.undoes else "d discards all changes."
            self.show_note(f"Nothing is ticked. {instead}")

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

        self.app.push_screen(send_back_question(), done)

    def _decide(self, decision: Decision) -> None:
        if self._pending is not None:
            self.send(self._store_decision(self._pending, decision))

    async def _store_decision(self, asked: PendingCall, decision: Decision) -> str:
        taken = await self._session.decide(asked.call.id, digest=asked.digest, decision=decision)
        return "" if taken else "The changes no longer wait for this decision."

    @property
    def apply_label(self) -> str:
        """How much `a` applies."""
        return f"{'undo' if self.undoes else 'apply'} {len(self._ticked)} of {len(self._applicable)}"

    # Drawing

    @property
    def undoes(self) -> bool:
        """True if the changes are the undo of an earlier answer."""
        return self._pending is not None and is_undo(self._pending.call.arguments)

    @property
    def is_denied(self) -> bool:
        """True if the rights in force do not let the changes be applied."""
        return self._pending is not None and self._pending.denial is not None

    def show(self) -> None:
        """Draw the list and the diffs."""
        pending = self._pending
        if pending is None or not self.can_draw:
            return
        self.body.set_class(self.body.side_by_side, "-wide")
        rows = tuple(self._rows())
        # The first heading, which names the role, belongs to no file.
        self._headings = tuple(number for number, row in enumerate(rows) if row.tone == "heading")[1:]
        key = self._asked if self._review is not None else ""
        self.show_subject(Description(rows=rows, payload=len(rows)), key=key, seen=self._end_seen)

    def _rows(self) -> Iterator[Row]:
        pending, review = self._pending, self._review
        if pending is None or review is None:
            yield Row(text="Reading the changes…", tone="quiet")
            return
        yield from about_changes(pending, review)
        if self._is_listed:
            yield from map(self._list_row, review.changes)
            yield Row()
        for text in review.notes:
            yield Row(text=line(text), tone="code", exact=True)
        if not self.undoes:
            yield from [Row()] if review.notes else []
            headings = (replace(self._list_row(change), tone="heading") for change in review.changes)
            yield from below_each_other(review.changes, headings, self._diffs, side_by_side=self.body.side_by_side)

    def _list_row(self, change: "Change") -> Row:
        """Return the line of a file in the list."""
        pointed = self._changes[self._index] is change
        stays = f"  stays as it is: {line(change.conflict)}" if change.conflict else ""
        text = f"{change_title(change, self._diffs[change.path])}{stays}"
        lead = tick_mark(change, pointed=pointed, ticked=change.path in self._ticked)
        return Row(text=text, lead=lead, exact=True, tone="caution" if change.conflict else "code")

    def frame(self) -> DialogFrame | None:
        """Return the heading."""
        if (pending := self._pending) is None:
            return None
        narrow = self.body.has_class("-narrow")
        apply = "Apply these changes?" if narrow else "Apply the changes of this turn?"
        question = "Undo these changes?" if self.undoes else apply
        return DialogFrame(title=question if pending.denial is None else "Not permitted now: these changes")

    @property
    def unread(self) -> str:
        """What `a` does until all changes were read."""
        skipped, below = self.payload.lines_skipped, self.payload.lines_below
        if self.is_read:
            return ""
        if self.room is Room.USUAL:
            unseen = f"{plural(skipped, 'line')} above not shown" if skipped else f"{plural(below, 'more line')} below"
            return f"read on first: {unseen}"
        return read_on_label(skipped or below, short=True)

    def legend(self, unread: str) -> KeyLegend:
        """Return the legend of keys."""
        pending, usual = self._pending, Room.USUAL
        if self._review is None or self.sending or pending is None:
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
        if subject and subject == self._asked and not self.body.too_small:
            self._end_seen = True


def tick_mark(change: "Change", *, pointed: bool, ticked: bool) -> str:
    """Return what stands before a change: if it is the one that is ticked next, and if it will be applied."""
    return f"{'>' if pointed else ' '} [{'!' if change.conflict else 'x' if ticked else ' '}] "


def about_changes(pending: PendingCall, review: "ContainedReview") -> Iterator[Row]:
    """Yield what stands above the changes of a contained turn: the role, and what the user should know first."""
    undoes = is_undo(pending.call.arguments)
    yield Row(text=f"Role {line(asked_by(pending))}: {line(review.head)}", tone="heading")
    if pending.outcome_unknown:
        yield Row(text=UNKNOWN_NOTE, tone="caution")
    if pending.denial is not None:
        yield Row(text=line(denial_sentence(pending.denial)), tone="caution")
    if pending.reason is not AskReason.POLICY or (_list_number(pending) > 1 and not undoes):
        yield Row(text=line(sentence(pending.why)), tone="caution")
    yield Row()


def send_back_question() -> Question[Decision]:
    """Return the question why the changes are sent back, which the model is told."""
    return Question[Decision](
        "Send the changes back",
        explain="Nothing is applied or discarded. The model is told why, and continues in the same copy.",
        text="",
        check=lambda text: Rejected(reason=text.strip(), send_back=True),
        done="sends them back",
        enter_answers=True,
    )


def coloured_diffs(changes: "Sequence[Change]", theme: BlockTheme) -> dict[str, DiffRows]:
    """Return the diff of each change by its path."""
    return {change.path: DiffRows(change.diff, name=change.path, theme=theme) for change in changes}


def below_each_other(
    changes: "Sequence[Change]", headings: Iterable[Row], diffs: Mapping[str, DiffRows], *, side_by_side: bool
) -> Iterator[Row]:
    """Yield all of each change: its heading, why it stays as it is, what its diff does not tell, its diff."""
    for change, heading in zip(changes, headings, strict=True):
        yield heading
        if change.conflict:
            yield Row(text=line(f"In conflict, stays as it is: {change.conflict}"), tone="caution")
        for text in change.lines:
            yield Row(text=line(text), tone="code", exact=True)
        yield from diffs[change.path].rows(side_by_side=side_by_side)
        yield Row()


def _list_number(pending: PendingCall) -> int:
    """Return which list of its turn this is: 2 after the first one was sent back."""
    arguments = parse_json(pending.call.arguments)
    number = arguments.get("list") if isinstance(arguments, Mapping) else None
    return number if isinstance(number, int) else 1
