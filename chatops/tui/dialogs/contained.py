"""The dialog at the end of a contained turn, and of an undo: changes that are applied whole, by file, or not at all.

Everything that is shown comes from the frozen list, and the answer is bound to its digest. Space ticks a file and never
decides. The list of files comes first. In a contained turn all diffs follow, which must be read before anything is
applied. An undo puts the user's own files back, and shows the diff of a file when asked for.

The page of ``/diff`` shows each file that a session changed, with the diff from before to now. It decides nothing.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from chatops.domain.canonical import parse_json
from chatops.domain.decisions import Approved, Decision, MarkedDone, Rejected
from chatops.domain.errors import ChatopsError
from chatops.domain.events import AskReason, PendingCall
from chatops.domain.sanitize import sanitize
from chatops.domain.tools import CONTAINED_APPLY, is_undo
from chatops.domain.wording import plural, sentence
from chatops.runtime.call_sheet import asked_by
from chatops.runtime.descriptions import UNKNOWN, denial_sentence
from chatops.toolkit.counting import count_work
from chatops.tui.composer import Composer
from chatops.tui.dialogs.body import DialogFrame
from chatops.tui.dialogs.dialog_keys import LATER, AnswerKey, DialogKey, Room
from chatops.tui.dialogs.guarded import GuardedDialog
from chatops.tui.dialogs.key_gate import KeyKind
from chatops.tui.dialogs.modal import KeyUse, Legend, Page
from chatops.tui.dialogs.payload import PayloadView
from chatops.tui.dialogs.question import Question
from chatops.tui.dialogs.rows import Description, DiffRows, Row, line, missing_columns, read_on
from chatops.tui.keys import BACK, SCROLL, KeyGroup, KeyHint, KeyLegend
from chatops.tui.notice import show_notice
from chatops.tui.theme import BlockTheme, theme_of

if TYPE_CHECKING:
    from chatops.contained.text import Change, ContainedReview
    from chatops.runtime.view import SessionView

_ONLY_UNKNOWN = "That key is for an application whose outcome is unknown."
_IS_UNKNOWN = "It may be half applied: R looks again and finishes, u says unknown, m marks it done."
COMMANDS_ARE_MISSING = "What commands (shell, Python) changed is not shown here."
SEE_GIT_DIFF = f"{COMMANDS_ARE_MISSING[:-1]}: see !git diff."
DIFFER = "The changes differ from those that were shown. Look again."
_LOOK_S = 1.0
"""Seconds between two looks at the changes."""
NOT_SENT_BACK = "An undo cannot be sent back: d leaves the changes applied."
IN_CONFLICT = "This file is in conflict and stays as it is."
_ELSEWHERE = "also changed outside this session"


def about_contained(pending: Sequence[PendingCall]) -> list[PendingCall]:
    """Return those pending calls that are about changes of a contained turn: of the session's, or of its children's."""
    return [one for one in pending if one.call.name == CONTAINED_APPLY]


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
            unknown=True,
        ),
        AnswerKey("u", "reject", label="tell the model it is unknown", unknown=True),
        AnswerKey("m", "mark_done", label="mark done", unknown=True),
        DialogKey(
            "escape", "go_back", "decide later: they stay pending", lambda self: "close" if self.sending else LATER
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
        self._end_seen = False

    def begin(self) -> None:
        """Read the changes in a thread."""
        self.refresh_subject()
        self.app.theme_changed_signal.subscribe(self, lambda _: self._colour())

    # Events of the session

    def refresh_subject(self) -> None:
        """Show what is pending now; close the dialog if nothing is."""
        pending = self._session.snapshot().pending
        if not (waiting := about_contained(pending)):
            if not self.sending or not pending:
                self.finish()
            return
        before = self._pending
        same = (one for one in waiting if before is not None and one.call.id == before.call.id)
        self._pending = next(same, waiting[0])
        if before is not None and before.digest == self._pending.digest and before.denial == self._pending.denial:
            return
        if before is not None:
            other = "These changes are of another task."
            self.note_change(DIFFER if before.call.id == self._pending.call.id else other)
        self._changes, self._end_seen, self.sending = None, False, False
        self.show()
        self._look(self._pending)

    def _look(self, pending: PendingCall) -> None:
        if self._shows(pending):
            self.run_worker(self._read(pending), group="changes", exclusive=True)

    def _shows(self, pending: PendingCall) -> bool:
        return self.can_draw and self._pending is not None and self._pending.digest == pending.digest

    async def _read(self, pending: PendingCall) -> None:
        """Read the changes, and again while they wait: other changes of the folder put some in conflict."""
        began = time.monotonic()
        try:
            found = await asyncio.to_thread(self._session.contained_changes, pending.call.arguments)
        except (ChatopsError, OSError) as error:
            self.show_note(f"The changes cannot be read: {sanitize(str(error))}")
            return
        if self._shows(pending) and not self.sending and found != self._changes:
            self._take(found)
        # Many changes, which take long to read, are read less often.
        self.set_timer(max(_LOOK_S, 10 * (time.monotonic() - began)), partial(self._look, pending))

    def _take(self, found: "ContainedReview") -> None:
        shown = self._changes.changes if self._changes is not None else ()
        unticked = {change.path for change in shown if not change.conflict} - self._ticked
        if self._changes is None:
            self.pause()
        else:
            self.note_change(DIFFER)
        self._changes, self._index, self._end_seen = found, 0, False
        self._ticked = {change.path for change in found.changes if not change.conflict} - unticked
        self._colour()

    def _colour(self) -> None:
        """Show the diffs in the colours of the theme."""
        found = self._changes.changes if self._changes is not None else ()
        self._diffs = coloured_diffs(found, theme_of(self.app))
        self.show()

    # Keys

    def scroll_by_key(self, key: str) -> bool:
        """Scroll if the key scrolls. In the list of an undo, arrows go to another file. Space ticks."""
        by = {"up": -1, "k": -1, "down": 1, "j": 1}.get(key, 0) if self.undoes else 0
        if by:
            self._step(by)
        return bool(by) or (key != "space" and super().scroll_by_key(key))

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
        self.note = ""
        self.show()
        start = len(tuple(about_changes(self._pending, self._changes)))
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
        if self.body.side_by_side and missing_columns(self.size.width):
            self._toggle_sides()

    def _tick(self) -> None:
        if self._changes is None or not self._changes.changes:
            return
        change = self._changes.changes[self._index]
        if change.conflict:
            self.note = IN_CONFLICT
        else:
            self._ticked ^= {change.path}
            self.note = ""
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
        if key.runs and pending.denial is not None:
            return denial_sentence(pending.denial)
        return super().why_not(key)

    @property
    def is_read(self) -> bool:
        """True if the changes may be applied: all was on the screen, or they are the user's own undo."""
        return self._end_seen or self.undoes

    def _apply(self) -> None:
        found = self._changes.changes if self._changes is not None else ()
        able = tuple(change.path for change in found if not change.conflict)
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
        able = sum(not change.conflict for change in self._changes.changes) if self._changes is not None else 0
        return f"{'undo' if self.undoes else 'apply'} {len(self._ticked)} of {able}"

    # Drawing

    @property
    def undoes(self) -> bool:
        """True if they are the undo of an earlier answer."""
        return self._pending is not None and is_undo(self._pending.call.arguments)

    @property
    def is_denied(self) -> bool:
        """True if the rights in force do not let them be applied."""
        return self._pending is not None and self._pending.denial is not None

    def show(self) -> None:
        """Draw the list and the diffs."""
        pending = self._pending
        if pending is None or not self.can_draw:
            return
        self.body.set_class(self.body.side_by_side, "-wide")
        rows = tuple(self._rows())
        key = f"{pending.call.id} {pending.digest}" if self._changes is not None else ""
        self.show_subject(Description(rows=rows, payload=len(rows)), key=key, seen=self._end_seen)

    def _rows(self) -> Iterator[Row]:
        pending, found = self._pending, self._changes
        if pending is None or found is None:
            yield Row(text="Reading the changes…", tone="quiet")
            return
        yield from about_changes(pending, found)
        yield from (self._listed(change) for change in found.changes)
        yield Row()
        for text in found.notes:
            yield Row(text=line(text), tone="code", exact=True)
        if not self.undoes:
            headings = (replace(self._listed(change), tone="heading") for change in found.changes)
            yield from below_each_other(found.changes, headings, self._diffs, side_by_side=self.body.side_by_side)

    def _listed(self, change: "Change") -> Row:
        """Return the line of a file in the list."""
        pointed = self._changes is not None and self._changes.changes[self._index] is change
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
        if self._changes is None or self.sending or pending is None:
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
        if pending is not None and subject == f"{pending.call.id} {pending.digest}" and not self.body.too_small:
            self._end_seen = True


def tick_mark(change: "Change", *, pointed: bool, ticked: bool) -> str:
    """Return what stands before a change: if it is the one that is ticked next, and if it will be applied."""
    return f"{'>' if pointed else ' '} [{'!' if change.conflict else 'x' if ticked else ' '}] "


def about_changes(pending: PendingCall, found: "ContainedReview") -> Iterator[Row]:
    """Yield what stands above the changes of a contained turn."""
    undoes = is_undo(pending.call.arguments)
    yield Row(text=f"Role {line(asked_by(pending))}: {line(found.head)}", tone="heading")
    if pending.outcome_unknown:
        yield Row(text=UNKNOWN, tone="caution")
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
    given = parse_json(pending.call.arguments)
    number = given.get("list") if isinstance(given, Mapping) else None
    return number if isinstance(number, int) else 1


def change_title(change: "Change", diff: DiffRows) -> str:
    """Return the line about a change that ``/diff`` and the dialogs share: what happened, to which file, how much."""
    return f"{line(change.title)}  {diff.counts if change.diff else ''}".rstrip()


class ChangesScreen(Page):
    """Shows the changes of files, all below each other."""

    CSS_PATH = "dialogs.tcss"

    def __init__(self, title: str, changes: "Sequence[Change]", *, note: str = SEE_GIT_DIFF) -> None:
        super().__init__()
        self._title = title
        self._changes = changes
        self._note = note
        self._diffs: list[DiffRows] = []
        self._starts: list[int] = []
        """The first row of each file."""
        self._side_by_side = False
        self._prepared: tuple[BlockTheme, tuple[Row, ...]] | None = None
        """The rows in one column for a theme, if they were made beforehand."""

    def prepare(self, theme: BlockTheme) -> None:
        """Make the rows before the screen is opened. Large files take seconds, which are counted. Blocks."""
        with count_work("drawing the changes", unit="line") as counter:
            self._diffs = [DiffRows(change.diff, name=change.path, theme=theme) for change in self._changes]
            counter.expect(sum(diff.length for diff in self._diffs))
            rows = []
            for row in self._rows():
                rows.append(row)
                counter.add()
        self._prepared = theme, tuple(rows)

    def compose(self) -> ComposeResult:
        """Yield heading, changes and keys."""
        with Vertical(id="changes"):
            yield Static("", id="changes-title")
            yield PayloadView(id="changes-payload")
            yield Legend(id="changes-keys")

    def on_mount(self) -> None:
        """Draw in the colours of the theme, also when it is changed."""
        self._draw()
        self.app.theme_changed_signal.subscribe(self, lambda _: self._draw())

    def on_resize(self) -> None:
        """Leave side by side where there is no room for it, and offer it where there is."""
        if self._side_by_side and missing_columns(self.size.width):
            self._toggle_sides()
        self._show_keys()

    def act_on_key(self, key: str) -> KeyUse:
        """Scroll, or go to another file."""
        match key:
            case "tab" | "n" | "right":
                self._go(1)
            case "shift+tab" | "p" | "left":
                self._go(-1)
            case "|":
                self._toggle_sides()
            case _:
                scrolled = self.query_one(PayloadView).scroll_by_key("space" if key == " " else key)
                return KeyUse.ACTS if scrolled else KeyUse.NONE
        return KeyUse.ACTS

    def _go(self, by: int) -> None:
        """Scroll to the next file, or to the previous one, and past the last one to the first."""
        view = self.query_one(PayloadView)
        top, at_end = view.top_row, view.scroll_offset.y >= view.max_scroll_y
        after = [start for start in self._starts if start > top and not at_end]
        before = [start for start in self._starts if start < top]
        view.show_row(next(iter(after), 0) if by > 0 else next(reversed(before), self._starts[-1] if not top else 0))

    def _toggle_sides(self) -> None:
        if not self._side_by_side and (missing := missing_columns(self.size.width)):
            show_notice(self.app, missing)
            return
        self._side_by_side = not self._side_by_side
        self._show()

    def _draw(self) -> None:
        theme = theme_of(self.app)
        if self._prepared is None or self._prepared[0] != theme:
            self._prepared = None
            self._diffs = [DiffRows(change.diff, name=change.path, theme=theme) for change in self._changes]
        added, removed = sum(diff.added for diff in self._diffs), sum(diff.removed for diff in self._diffs)
        counts = f"{plural(len(self._changes), 'file')}, +{added} {theme.symbols.minus}{removed}"
        heading = Content.styled(f"{line(self._title)}: {counts}", "bold")
        self.query_one("#changes-title", Static).update(heading)
        self._show()

    def _show(self) -> None:
        rows = self._prepared[1] if self._prepared is not None and not self._side_by_side else tuple(self._rows())
        self._starts = [at for at, row in enumerate(rows) if row.tone == "heading"]
        self.query_one(PayloadView).show(Description(rows=rows, payload=len(rows)), key="changes", seen=True)
        self._show_keys()

    def _show_keys(self) -> None:
        files = [KeyHint("n p", "next, previous file")] if len(self._changes) > 1 else []
        sides = [KeyHint("|", "one column" if self._side_by_side else "side by side")]
        self.query_one(Legend).show(BACK, *files, *([] if missing_columns(self.size.width) else sides), SCROLL)

    def _rows(self) -> Iterator[Row]:
        yield Row(text=self._note, tone="quiet")
        for change, diff in zip(self._changes, self._diffs, strict=True):
            yield Row()
            yield Row(text=change_title(change, diff), tone="heading")
            if change.elsewhere:
                yield Row(text=_ELSEWHERE, tone="caution")
            yield from (Row(text=line(text.strip()), tone="quiet", exact=True) for text in change.lines)
            yield from diff.rows(side_by_side=self._side_by_side)
