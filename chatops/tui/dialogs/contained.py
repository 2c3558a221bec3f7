"""The dialog at the end of a contained turn, and of an undo: changes that are applied whole, by file, or not at all.

Everything that is shown comes from the frozen list, and the answer is bound to its digest. Space ticks a file and never
decides. The list of files comes first. In a contained turn all diffs follow, which must be read before anything is
applied. An undo puts the user's own files back, and shows the diff of a file when asked for.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual import events, on

from chatops.domain.canonical import parsed
from chatops.domain.decisions import Approved, Decision, MarkedDone, Rejected
from chatops.domain.errors import ChatopsError
from chatops.domain.events import AskReason, Event, PendingCall
from chatops.domain.sanitize import sanitize
from chatops.domain.tools import CONTAINED_APPLY, is_undo
from chatops.domain.wording import plural, sentence
from chatops.runtime.denials import denial_sentence
from chatops.runtime.descriptions import UNKNOWN
from chatops.tui.composer.composer import Composer
from chatops.tui.dialogs.changes import ChangesScreen, titled
from chatops.tui.dialogs.diff_rows import DiffRows, missing_columns
from chatops.tui.dialogs.framed import DialogFrame
from chatops.tui.dialogs.guarded import GuardedDialog
from chatops.tui.dialogs.payload import PayloadView, dialog_theme
from chatops.tui.dialogs.question import Question
from chatops.tui.dialogs.rows import Description, Row, line, read_on
from chatops.tui.keys import KeyGroup
from chatops.tui.notice import show_notice

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chatops.contained.text import Change, ContainedReview
    from chatops.runtime.view import SessionView


def asks_about_changes(pending: "Sequence[PendingCall]") -> bool:
    """Return True if what is pending are the changes of a contained turn."""
    return len(pending) == 1 and pending[0].call.name == CONTAINED_APPLY


class ContainedScreen(GuardedDialog):
    """Asks about the changes of a contained turn until they are decided or postponed with Esc."""

    DECIDING: ClassVar[frozenset[str]] = frozenset("adDRum")
    AT_ONCE: ClassVar[frozenset[str]] = GuardedDialog.AT_ONCE | frozenset("f|")
    PAGE_KEY: ClassVar[str] = "PgDn"
    KEY_GROUP: ClassVar[KeyGroup] = "contained"

    def __init__(self, session: "SessionView", composer: Composer) -> None:
        super().__init__(composer)
        self._session = session
        self._pending: PendingCall | None = None
        self._changes: ContainedReview | None = None
        self._ticked: set[str] = set()
        self._diffs: dict[str, DiffRows] = {}
        self._side_by_side = False
        self._index = 0
        self._seen = False
        self._sending = False

    def on_mount(self) -> None:
        """Read the changes in a thread, and start the pause."""
        self._drawn = True
        self.fit()
        self.start_pause()
        self._refresh()
        self.app.theme_changed_signal.subscribe(self, lambda _: self._colour())

    # Events of the session

    def feed(self, event: Event) -> None:
        """Handle an event of the session. Called for every event while the dialog is open."""
        if self.can_draw:
            self._refresh()

    def follow(self) -> None:
        """Refresh after the followed session was read again."""
        if self.can_draw:
            self._refresh()

    def _refresh(self) -> None:
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
            self._note = "The changes differ from those that were shown. Look again."
            self._typing = False
            self.pause()
        self._changes, self._seen, self._sending = None, False, False
        self._show()
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
        self._show()

    # Keys

    def scrolled(self, key: str) -> bool:
        """Scroll if the key scrolls. In the list of an undo, arrows go to another file. Space ticks."""
        by = {"up": -1, "k": -1, "down": 1, "j": 1}.get(key, 0) if self._undoes else 0
        if by:
            self._step(by)
        return bool(by) or (key != "space" and super().scrolled(key))

    def answer(self, key: str, *, typed: bool) -> None:
        """Handle one key."""
        match key:
            case "tab" | "right":
                self._step(1)
            case "shift+tab" | "left":
                self._step(-1)
            case "enter":
                self._show_diff()
            case " ":
                self._tick()
            case "f":
                self.toggle_full()
            case "|":
                self._toggle_sides()
            case _ if key in self.DECIDING:
                self._decide_by(key)
            case _ if typed:
                self.pause_again()
            case _:
                pass

    def _step(self, by: int) -> None:
        """Go to another file: in the list while that is on the screen, else from diff to diff."""
        if self._changes is None or self._pending is None or not self._changes.changes:
            return
        count = len(self._changes.changes)
        self._index = (self._index + by) % count
        self._note = ""
        self._show()
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
        if self._undoes:
            one = self._changes.changes[self._index]
            page = ChangesScreen("The undo", (one,), note="This is what the undo changes.")
            self.app.push_screen(page, lambda typed: self.on_paste(events.Paste(typed)) if typed else None)
            return
        # The first heading names the role.
        headings = [at for at, row in enumerate(self._rows()) if row.tone == "heading"]
        self.payload.show_row(headings[self._index + 1])
        self.call_after_refresh(self.show_frame)

    def _toggle_sides(self) -> None:
        if not self._side_by_side and (missing := missing_columns(self.size.width)):
            show_notice(self.app, missing)
            return
        self._side_by_side = not self._side_by_side
        self.set_class(self._side_by_side, "-wide")
        self._note = ""
        self._show()

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
        self._show()

    def _decide_by(self, key: str) -> None:
        pending = self._pending
        if pending is None or self._changes is None:
            self.not_taken("the changes are not on the screen yet")
        elif self._sending:
            self.not_taken("an answer is being stored")
        elif pending.outcome_unknown:
            self._decide_unknown(key)
        elif key == "d":
            self._send(Rejected())
        elif key == "D" and self._undoes:
            self.show_note("An undo cannot be sent back: d leaves the changes applied.")
        elif key == "D":
            self._ask_reason()
        elif key != "a":
            self.show_note("That key is for an application whose outcome is unknown.")
        elif pending.denial is not None:
            self.show_note(denial_sentence(pending.denial))
        elif self.too_small:
            self.show_note("Make the window larger: what cannot be shown cannot be applied.")
        elif not self._read_enough:
            self.payload.read_on()
            self.call_after_refresh(self.show_frame)
        elif not self._ticked:
            rest = "d leaves the changes applied." if self._undoes else "d discards all changes."
            self.show_note(f"Nothing is ticked. {rest}")
        else:
            able = tuple(one.path for one in self._changes.changes if not one.conflict)
            ticked = tuple(path for path in able if path in self._ticked)
            self._send(Approved(only=None if ticked == able else ticked))

    def _decide_unknown(self, key: str) -> None:
        match key:
            case "R":
                self._send(Approved())
            case "u" | "d":
                self._send(Rejected())
            case "m":
                self._send(MarkedDone())
            case _:
                self.show_note("It may be half applied: R looks again and finishes, u says unknown, m marks it done.")

    def _ask_reason(self) -> None:
        asked = self._pending

        def done(decision: Decision | None) -> None:
            if decision is not None and self._pending is asked:
                self._send(decision)

        question = Question[Decision](
            "Send the changes back",
            explain="Nothing is applied or discarded. The model is told why, and goes on in the same copy.",
            text="",
            check=lambda text: Rejected(reason=text.strip(), send_back=True),
            done="sends them back",
            enter_answers=True,
        )
        self.app.push_screen(question, done)

    def _send(self, decision: Decision) -> None:
        asked = self._pending
        if asked is None:
            return
        self._sending, self._note = True, ""
        self.show_frame()
        # Run on the app: a worker of this screen would be cancelled when the dialog closes.
        self.app.run_worker(self._decide(asked, decision), group="decide")

    async def _decide(self, asked: PendingCall, decision: Decision) -> None:
        try:
            taken = await self._session.decide(asked.call.id, digest=asked.digest, decision=decision)
            problem = "" if taken else "The changes no longer wait for this decision."
        except ChatopsError as error:
            problem = sanitize(error.full)
        if problem:
            self._sending = False
            self.not_answered(problem)

    # Drawing

    @property
    def _undoes(self) -> bool:
        return self._pending is not None and is_undo(self._pending.call.arguments)

    @property
    def _read_enough(self) -> bool:
        """True if the changes may be applied: all was on the screen, or they are the user's own undo."""
        return self._seen or self._undoes

    def _show(self) -> None:
        pending = self._pending
        if pending is None or not self.can_draw:
            return
        rows = tuple(self._rows())
        key = f"{pending.call.id} {pending.digest}" if self._changes is not None else ""
        self.payload.show(Description(rows=rows, payload=len(rows)), key=key, seen=self._seen)
        self.show_frame()
        self.call_after_refresh(self.show_frame)

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
        for one in () if self._undoes else found.changes:
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
        if pending.reason is not AskReason.POLICY or (_list_number(pending) > 1 and not self._undoes):
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
        """Return heading and keys."""
        pending, found = self._pending, self._changes
        if pending is None:
            return None
        narrow = self.has_class("-narrow")
        apply = "Apply these changes?" if narrow else "Apply the changes of this turn?"
        asks = "Undo these changes?" if self._undoes else apply
        title = asks if pending.denial is None else "Not permitted now: these changes"
        return DialogFrame(title=title, keys=self._keys(pending) if found is not None else "Esc later")

    def _keys(self, pending: PendingCall) -> str:
        if self._sending:
            return "Esc close"
        if pending.outcome_unknown:
            return "R look again and finish   u tell the model it is unknown   m mark done   Esc later"
        rest = "d discard all   D send back with a reason   Esc later"
        if self._undoes:
            rest = "d leave them applied   Esc later"
        if pending.denial is not None:
            return rest
        skipped, below = self.payload.lines_skipped, self.payload.lines_below
        left = f"{plural(skipped, 'line')} above not shown" if skipped else f"{plural(below, 'more line')} below"
        able = sum(not one.conflict for one in self._changes.changes) if self._changes is not None else 0
        apply = f"a {'undo' if self._undoes else 'apply'} {len(self._ticked)} of {able}"
        if self.has_class("-narrow"):
            discard = "d leave" if self._undoes else "d discard"
            if self.has_class("-lowest"):
                return f"{apply if self._read_enough else 'a read on'}  {discard}  F1 keys"
            first = apply if self._read_enough else f"a {read_on(skipped or below, short=True)}"
            return f"{first}  {discard}  Space ticks  Tab next  Enter diff  F1 more keys  Esc later"
        first = apply if self._read_enough else f"a read on first: {left}"
        files = "Tab next file   Enter its diff"
        views = self.view_keys(sides=not self._undoes, beside=self._side_by_side).strip()
        return "\n".join(filter(None, (f"{first}   Space ticks   {files}", rest, views)))

    @on(PayloadView.EndSeen)
    def end_seen(self, event: PayloadView.EndSeen) -> None:
        """Allow applying, now that the end of the changes has been on screen."""
        event.stop()
        pending = self._pending
        if pending is not None and event.key == f"{pending.call.id} {pending.digest}" and not self.too_small:
            self._seen = True
        self.show_frame()


def _list_number(pending: PendingCall) -> int:
    """Return which list of its turn this is: 2 after the first one was sent back."""
    given = parsed(pending.call.arguments)
    number = given.get("list") if isinstance(given, Mapping) else None
    return number if isinstance(number, int) else 1
