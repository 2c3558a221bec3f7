"""``/pending --all``: the calls that wait in all sessions, shown one at a time and decided without opening sessions.

The list is read again while the dialog is open. If it changes without a key of the user, all keys wait, because the
next key was meant for what was there. A call of the session that is open in this window is shown, and decided in the
dialog of that session. A contained turn has worked in a copy of the folder, and its changes wait as one call: those
that are ticked are applied, once all were on the screen.
"""

from asyncio import Task
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, ClassVar

from textual.content import Content

from chatops.config.paths import show_folder
from chatops.domain.decisions import Approved, Decision
from chatops.domain.events import PendingCall
from chatops.domain.ids import CallId, SessionId
from chatops.domain.tools import CONTAINED_APPLY, is_undo
from chatops.runtime.descriptions import decision_word
from chatops.store.base import DecisionRow
from chatops.tui.composer import Composer
from chatops.tui.dialogs.approval_frame import describe, fact_rows, title
from chatops.tui.dialogs.approval_keys import BY_NAME, VIEW_KEYS, AskedCall
from chatops.tui.dialogs.approval_list import CallMark, ListedCall
from chatops.tui.dialogs.calls import CallsDialog
from chatops.tui.dialogs.changes import change_title
from chatops.tui.dialogs.contained import (
    DIFFER,
    IN_CONFLICT,
    NOT_SENT_BACK,
    about_changes,
    below_each_other,
    coloured_diffs,
    send_back_question,
    tick_mark,
)
from chatops.tui.dialogs.dialog_keys import AnswerKey, Answers, DialogKey, Room, Words, legend_of
from chatops.tui.dialogs.key_gate import KeyKind, KeyPress
from chatops.tui.dialogs.picker import columns
from chatops.tui.dialogs.rows import Description, DiffRows, Row, line
from chatops.tui.keys import KeyGroup, KeyLegend
from chatops.tui.notice import show_notice
from chatops.tui.theme import BlockTheme, theme_of

if TYPE_CHECKING:
    from chatops.contained.text import Change, ContainedReview
    from chatops.wiring.all_pending import AllPending, WaitingCall

_LONGEST_CELL = 12
"""Characters in a column of the list that has an age, a mark, a folder or a role."""
_MIN_WIDTH_WITH_ROLES = 70
"""Cells of a line from which on the list has room for roles."""
_NO_FILES = "Only changes of a contained turn have files to tick."
_UNITS_OF_AGE = ((86_400, "d"), (3_600, "h"), (60, "min"))
"""Seconds and names of the units, the largest first."""


def _is_about_changes(pending: PendingCall) -> bool:
    return pending.call.name == CONTAINED_APPLY


# Labels of keys, as `dialog_keys.Words`. Keys have other words for changes of a contained turn, and for a budget.


def _for_changes(*words: str) -> Callable[[AskedCall], Words]:
    """Return the label of a key that only changes of a contained turn have."""
    return lambda asked: words if asked.applies else None


def _deny_label(asked: AskedCall) -> Words:
    pending = asked.item.pending
    if not _is_about_changes(pending):
        return asked.unless_budget("deny", budget="end the turn")
    return "leave them applied" if is_undo(pending.call.arguments) else "discard all"


def _reason_label(asked: AskedCall) -> Words:
    pending = asked.item.pending
    undoes = _is_about_changes(pending) and is_undo(pending.call.arguments)
    return None if undoes and not pending.outcome_unknown else "with a reason"


def _approve_label(asked: AskedCall) -> Words:
    return asked.applies or asked.unless_budget("approve once", "approve", budget="go on")


class AllPendingScreen(CallsDialog):
    """Asks about the calls of all sessions until none is left or the user postpones them with Esc."""

    KEYS = (
        replace(BY_NAME["a"], help="approve once; apply the ticked changes of a contained turn", label=_approve_label),
        replace(BY_NAME["d"], help="deny; discard all changes of a contained turn", label=_deny_label),
        AnswerKey(
            "D",
            "ask_reason",
            "deny and tell the model why; send changes back with a reason",
            _reason_label,
            kind=KeyKind.DENY,
            answers=Answers.ALL,
            missing=NOT_SENT_BACK,
        ),
        BY_NAME["u"],
        BY_NAME["m"],
        DialogKey("enter", "open_session", "open its session, and its dialog there", ("open its session", "open")),
        DialogKey(
            "n", "next_change", "next file of a contained turn; p: the one before", _for_changes("next file", "file")
        ),
        DialogKey("p", "previous_change"),
        DialogKey("t", "tick", "tick or untick the file; decides nothing", _for_changes("ticks", "ticks")),
        *(BY_NAME[name] for name in f"tab shift+tab up {VIEW_KEYS} f1 escape".split()),
    )
    KEY_GROUP: ClassVar[KeyGroup] = "all pending"
    UNKNOWN_NOTE: ClassVar[str] = (
        "It may have taken effect: u says unknown, m marks it done. Enter: run it again there."
    )

    def __init__(
        self,
        calls: "AllPending",
        waiting: "Sequence[WaitingCall]",
        composer: Composer,
        *,
        current: SessionId,
        workspace: str,
        open_session: Callable[[SessionId], None],
        unticked: set[tuple[str, str]],
    ) -> None:
        """Show what waits. `current` is the session that is open here, in the folder `workspace`.

        `unticked` is kept from dialog to dialog: the changes that are not to be applied, by the digest of the call and
        the path.
        """
        super().__init__(composer)
        self._source = calls
        self._current = current
        self._workspace = workspace
        self._open = open_session
        self._waiting = waiting
        """The calls that wait, as they were read last."""
        self._known: dict[CallId, WaitingCall] = {}
        """All calls that were listed, as they were read last."""
        self._pointed_files: dict[str, int] = {}
        """Index of the file that `t` ticks, by the digest of the call; the first one if the digest is not there."""
        self._unticked = unticked
        self._diffs: dict[str, DiffRows] = {}
        """The diffs of the changes that were drawn last, by path."""
        self._diffs_from: tuple[ContainedReview, BlockTheme] | None = None
        """The changes and the theme that `_diffs` were made from."""
        self._continuations: dict[SessionId, str] = {}
        """How the sessions continue in which a call was decided here, as sentences."""
        self._watching: Task[None] | None = None
        """Reads the list again, until the dialog is closed."""

    def begin(self) -> None:
        """Show the first call, and follow the list."""
        super().begin()
        self._watching = self._source.watch(self._adopt_list)

    def on_unmount(self) -> None:
        """Stop following, and say how the sessions continue."""
        if self._watching is not None:
            self._watching.cancel()
        if self._continuations:
            show_notice(self.app, "\n".join(self._continuations.values()))

    # The calls

    def waiting(self) -> Sequence[PendingCall]:
        """Return the calls that wait now."""
        self._known.update((call.pending.call.id, call) for call in self._waiting)
        return [call.pending for call in self._waiting]

    def _adopt_list(self, waiting: "Sequence[WaitingCall]") -> None:
        self._waiting = waiting
        self.follow()

    def refresh_subject(self) -> None:
        """Show what waits now. All keys wait if that is different without a key of the user."""
        before = {item.pending.call.id for item in self._calls.undecided}
        changes_now = {call.pending.call.id: call.changes for call in self._waiting}
        with_other_changes = [
            item
            for item in self._calls.undecided
            if (call_id := item.pending.call.id) in changes_now and changes_now[call_id] != self._known[call_id].changes
        ]
        # They have to be read again, and drawn again if one of them is on the screen.
        for item in with_other_changes:
            item.seen = False
            self._described = None
        super().refresh_subject()
        has_new = any(item.pending.call.id not in before for item in self._calls.undecided)
        has_lost = any(item.mark is CallMark.ELSEWHERE and item.pending.call.id in before for item in self._calls.items)
        if self.can_draw and (has_new or has_lost or with_other_changes):
            self.note_change(self.note or (DIFFER if with_other_changes else "The list has changed."))
            self.show_frame()

    async def decide(self, asked: PendingCall, decision: Decision) -> bool:
        """Post a decision on exactly what was shown."""
        call = replace(self._known[asked.call.id], pending=asked)
        if then := await self._source.decide(call, decision):
            word = decision_word(decision, outcome_unknown=asked.outcome_unknown).capitalize()
            self._continuations[call.session_id] = self.note = f"{word}: {title(asked)}. {then}"
        return bool(then)

    async def decision_on(self, asked: PendingCall) -> DecisionRow | None:
        """Return the decision on a call, or None."""
        return await self._source.decision_on(self._known[asked.call.id])

    # Keys

    def _press(self, name: str, *, at: float) -> KeyPress:
        """Return a key, pressed `at`. Discarding changes waits as approving does: it cannot be undone."""
        press, item = super()._press(name, at=at), self._calls.current
        discards = press.kind is KeyKind.DENY and item is not None and _is_about_changes(item.pending)
        return replace(press, kind=KeyKind.DECIDE) if discards else press

    def answer(self, key: DialogKey) -> None:
        """Handle a key of the table."""
        item = self._calls.current
        if item is not None and item.undecided and key.kind >= KeyKind.DENY and (why := self._not_from_here(item)):
            self.not_taken(why)
        else:
            super().answer(key)

    def _not_from_here(self, item: ListedCall) -> str:
        """Return why no key of this dialog answers the call; empty if one does."""
        call = self._known[item.pending.call.id]
        if call.session_id == self._current:
            return "its session is open here, and Enter opens its dialog"
        return line(f"the changes cannot be shown: {call.changes}") if isinstance(call.changes, str) else ""

    def _approve(self, item: ListedCall) -> None:
        applicable, ticked = self._applicable(item), self._ticked(item)
        if not _is_about_changes(item.pending):
            super()._approve(item)
        elif not applicable:
            self.show_note("Nothing can be applied: all changes are in conflict.")
        elif not ticked:
            self.show_note(f"Nothing is ticked. d: {_deny_label(self._asked(item))}.")
        else:
            self._send(item, Approved(only=None if ticked == applicable else ticked))

    def _changes_of(self, item: ListedCall) -> "Sequence[Change]":
        """Return the changes that a call is about; none for any other call, or if they cannot be shown."""
        review = self._known[item.pending.call.id].changes
        return () if review is None or isinstance(review, str) else review.changes

    def _applicable(self, item: ListedCall) -> tuple[str, ...]:
        return tuple(change.path for change in self._changes_of(item) if not change.conflict)

    def _ticked(self, item: ListedCall) -> tuple[str, ...]:
        """Return the paths of the changes to apply."""
        return tuple(path for path in self._applicable(item) if (item.pending.digest, path) not in self._unticked)

    def _next_change(self) -> None:
        self._go_to_change(1)

    def _previous_change(self) -> None:
        self._go_to_change(-1)

    def _go_to_change(self, by: int) -> None:
        """Point to another file, and scroll to it."""
        item = self._calls.current
        if item is None or not (changes := self._changes_of(item)):
            self.show_note(_NO_FILES)
            return
        digest = item.pending.digest
        index = self._pointed_files[digest] = (self._pointed_files.get(digest, 0) + by) % len(changes)
        self._draw_changes()
        assert self._described is not None
        headings = [number for number, row in enumerate(self._described.rows) if row.tone == "heading"]
        # The last headings are those of the files.
        self.payload.show_row(headings[-len(changes) :][index])
        self.call_after_refresh(self.show_frame)

    def _tick(self) -> None:
        item = self._calls.current
        if item is None or not (changes := self._changes_of(item)):
            self.show_note(_NO_FILES)
            return
        change = changes[self._pointed_files.get(item.pending.digest, 0)]
        if change.conflict:
            self.show_note(IN_CONFLICT)
            return
        self._unticked.symmetric_difference_update({(item.pending.digest, change.path)})
        self._draw_changes()

    def _draw_changes(self) -> None:
        self.note, self._described = "", None
        self.show()

    def _ask_reason(self, item: ListedCall) -> None:
        pending = item.pending
        if not _is_about_changes(pending) or pending.outcome_unknown:
            super()._ask_reason(item)
        else:
            self._ask(item, send_back_question())

    def _open_session(self) -> None:
        """Leave the dialog for the session of the shown call. One of another folder is opened there."""
        if (item := self._calls.current) is None:
            return
        call = self._known[item.pending.call.id]
        if call.folder != self._workspace:
            self.show_note(f"It works in {show_folder(call.folder)}. Open it there: chatops -r {call.session_id}")
            return
        self.finish()
        self._open(call.session_id)

    # Drawing

    def has_diff(self, item: ListedCall) -> bool:
        """Return True if the call can be shown side by side."""
        return _is_about_changes(item.pending) or super().has_diff(item)

    def description(self, item: ListedCall, *, details: bool, side_by_side: bool) -> Description:
        """Return the whole sheet of a call, with its session; all changes if it is about those."""
        call, theme = self._known[item.pending.call.id], theme_of(self.app)
        if not _is_about_changes(item.pending):
            return describe(item.pending, theme=theme, about=call.facts, details=details, side_by_side=side_by_side)
        rows = (*fact_rows(call.facts), Row(), *self._change_rows(call, side_by_side=side_by_side))
        return Description(rows=rows, payload=len(rows))

    def _change_rows(self, call: "WaitingCall", *, side_by_side: bool) -> Iterator[Row]:
        if (review := call.changes) is None or isinstance(review, str):
            yield Row(text=line(f"The changes cannot be shown: {review}"), tone="caution")
            return
        theme = theme_of(self.app)
        if self._diffs_from != (review, theme):
            self._diffs_from, self._diffs = (review, theme), coloured_diffs(review.changes, theme)
        diffs = self._diffs
        yield from about_changes(call.pending, review)
        yield from (Row(text=line(text), tone="code", exact=True) for text in review.notes)
        yield from [Row()] if review.notes else []
        digest = call.pending.digest
        pointed = self._pointed_files.get(digest, 0)
        headings = [
            Row(
                text=change_title(change, diffs[change.path]),
                lead=tick_mark(change, pointed=index == pointed, ticked=(digest, change.path) not in self._unticked),
                exact=True,
                tone="heading",
            )
            for index, change in enumerate(review.changes)
        ]
        yield from below_each_other(review.changes, headings, diffs, side_by_side=side_by_side)

    def _asked(self, item: ListedCall) -> AskedCall:
        verb = "undo" if is_undo(item.pending.call.arguments) else "apply"
        counts = f"{len(self._ticked(item))} of {len(self._applicable(item))}"
        return replace(super()._asked(item), applies=f"{verb} {counts}" if self._changes_of(item) else "")

    def listed(self) -> Content:
        """Return the list around the shown call: age or mark, the call, folder, role and title of its session."""
        items, index = self._calls.items, self._calls.index
        # A fifth of the height, within bounds. One row stays below the shown call.
        rows = max(3, min(8, self.size.height // 5))
        first = max(0, min(index - rows + 2, len(items) - rows))
        table = [self._columns(item) for item in items[first : first + rows]]
        state, _, folder, role, _ = (min(_LONGEST_CELL, max(map(len, column))) for column in zip(*table, strict=True))
        # Without a column of their own, the heading has the role of the shown call.
        role = role if self.body.line_width >= _MIN_WIDTH_WITH_ROLES else 0
        # Call and title get what is left after the others and the 10 cells between all of them, three to two.
        room = max(10, self.body.line_width - state - folder - role - 10)
        widths = (state, room * 3 // 5, folder, role, room - room * 3 // 5)
        lines = []
        for at, cells in enumerate(table, start=first):
            shown = columns(*((cell, width) for cell, width in zip(cells, widths, strict=True) if width))
            lines.append(Content.styled(f"{'>' if at == index else ' '} {shown}", "bold" if at == index else ""))
        return Content("\n").join(lines)

    def _columns(self, item: ListedCall) -> tuple[str, ...]:
        call = self._known[item.pending.call.id]
        state = _age(call.age) if item.undecided else item.mark.value.removeprefix("decided ")
        where = "this session" if call.session_id == self._current else line(call.title)
        folder = line(PurePath(call.folder).name or call.folder)
        return state, title(item.pending), folder, line(call.pending.role), where

    def legend(self, unread: str) -> KeyLegend:
        """Return the legend for the shown call."""
        if (item := self._calls.current) is None:
            return KeyLegend(())
        pending = item.pending
        answers = "u m D" if pending.outcome_unknown else "d D" if pending.denial is not None else "a d D"
        # The names of the keys on each line. One line if there is little room, or if no key answers.
        lines: tuple[str, ...] = (f"{answers} t n enter tab f1 escape",)
        if not item.undecided or self._not_from_here(item):
            lines = ("enter tab escape",)
        elif self.room is Room.USUAL:
            lines = answers, "t n", f"enter escape {VIEW_KEYS} tab"
        if unread and self.room is Room.LOWEST:
            unread = "read on"
        return legend_of(self.by_name, *lines, state=self._asked(item), room=self.room, unread=unread)


def _age(seconds: float) -> str:
    fitting = (f"{int(seconds // size)} {unit} ago" for size, unit in _UNITS_OF_AGE if seconds >= size)
    return next(fitting, "just now")
