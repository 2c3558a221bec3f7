"""Dialog that makes a rule from the decision on a call: its pattern, its scope, and what it would have allowed."""

import math
from collections.abc import Awaitable, Callable, Iterator

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Offset
from textual.widgets import Static

from chatops.config.folder_identity import path_of
from chatops.domain.decisions import AnyArguments, Approved, ArgumentPattern, ArgvPattern, ExactArguments, RuleScope
from chatops.domain.errors import ChatopsError
from chatops.domain.sanitize import show_path
from chatops.domain.tools import Outcome
from chatops.domain.wording import cut, plural
from chatops.policy.patterns import STAR
from chatops.policy.remembered import SCOPE_NAMES, SCOPES
from chatops.policy.rule_syntax import rule_text, show_rule
from chatops.runtime.call_sheet import subject_line
from chatops.runtime.rule_offer import RecordedCall, RuleOffer
from chatops.tui.dialogs.modal import TALL, Legend, Modal, Title
from chatops.tui.dialogs.question import Question
from chatops.tui.dialogs.rows import line
from chatops.tui.keys import BACK, KeyHint

MAX_LISTED = 5
"""Recorded calls that are named. Further ones are counted."""
_AROUND = 8
"""Lines of the dialog outside its choices."""
_LONGEST_CALL = 300
"""Characters of a call that are shown."""
_WORDS_ONLY = "The rule covers the words. The files that they run may hold something else by then."
_NOTHING_RECORDED = "This session has no earlier call of this tool."


class RuleDialog(Modal[Approved | None]):
    """Lets the user choose pattern and scope. The result is the decision, None after Esc.

    It is no `GuardedDialog` although it decides: it opens only after the guarded approval has taken a key, and only
    ctrl+s decides, which no text or paste contains. The approval drops the decision if its call has changed meanwhile.
    """

    CSS_PATH = "dialogs.tcss"

    def __init__(
        self,
        offer: RuleOffer,
        patterns: list[ArgumentPattern],
        recorded: Callable[[], Awaitable[tuple[RecordedCall, ...]]],
    ) -> None:
        """Choose among `patterns`. `recorded` reads the session's earlier calls, which may take a moment."""
        super().__init__()
        self._offer = offer
        self._reading = recorded
        self._recorded: tuple[RecordedCall, ...] | None = None
        self._patterns = patterns
        self._pattern = 0
        self._scope = RuleScope.SESSION
        self._note = ""
        self._drawn: tuple[Content, ...] = ()
        """The rows of the choices."""
        self._in_scopes = False
        """True if the last key has chosen a scope, not a pattern."""
        self._opened_at = math.inf
        """Monotonic seconds when this was opened."""
        self._use_possible_scope()

    def compose(self) -> ComposeResult:
        """Yield title, choices, note and keys."""
        call, role = self._offer.pending.call, self._offer.pending.role
        with Vertical(id="rule"):
            yield Title(f"Make a rule for {line(call.name)}, as {line(role)}")
            with VerticalScroll(id="rule-body"):
                yield Static("", id="rule-choices", markup=False)
            yield Static("", id="rule-note", markup=False)
            yield Legend(id="rule-keys")

    def on_mount(self, event: events.Mount) -> None:
        """Draw the choices, and read the recorded calls."""
        self._opened_at = event.time
        self._draw()
        self.watch(self.query_one(VerticalScroll), "scroll_y", self._name_scroll_keys, init=False)
        self.run_worker(self._read(), exit_on_error=False)

    async def _read(self) -> None:
        try:
            self._recorded = await self._reading()
        except ChatopsError:
            self._recorded = ()
        if self.is_attached:
            self._draw()

    def on_resize(self) -> None:
        """Limit the height of the choices, which scroll, so that note and keys stay on screen."""
        self.match_covered()
        tall = self.size.height >= TALL
        self.query_one("#rule-body").styles.max_height = self.size.height - _AROUND if tall else None
        self._draw()

    def on_key(self, event: events.Key) -> None:
        """Move with arrow keys and Tab, edit with e, decide with ctrl+s, leave with Esc."""
        match event.key:
            case "escape":
                self.dismiss(None)
            case "ctrl+s" if event.time < self._opened_at:
                # The key has waited: nobody can have seen the rule.
                self._note = "not taken: ctrl+s, too early"
                self._draw()
            case "ctrl+s":
                self._decide()
            case "enter":
                # It may be the end of typed or pasted text.
                self._note = "not taken: Enter; ctrl+s approves"
                self._draw()
            case "up" | "down":
                self._choose_pattern(-1 if event.key == "up" else 1)
                self.query_one(VerticalScroll).scroll_home(animate=False)
            case "tab" | "right" | "shift+tab" | "left":
                self._choose_scope(1 if event.key in ("tab", "right") else -1)
                self.query_one(VerticalScroll).scroll_end(animate=False)
            case "e":
                self._edit()
            case "pageup":
                self.query_one(VerticalScroll).scroll_page_up(animate=False)
            case "pagedown":
                self.query_one(VerticalScroll).scroll_page_down(animate=False)
            case _:
                return
        event.stop()
        event.prevent_default()

    @property
    def pattern(self) -> ArgumentPattern:
        """The chosen pattern."""
        return self._patterns[self._pattern]

    def _decide(self) -> None:
        reason = self._offer.why_not(self.pattern, self._scope)
        if reason:
            self._note = f"Not possible: {line(reason)}."
            self._draw()
        else:
            self.dismiss(Approved(remember=self.pattern, scope=self._scope))

    def _choose_pattern(self, by: int) -> None:
        self._pattern, self._in_scopes = (self._pattern + by) % len(self._patterns), False
        self._use_possible_scope()
        self._draw()

    def _choose_scope(self, by: int) -> None:
        usable, self._in_scopes = self._usable_scopes, True
        if self._scope in usable:
            self._scope = usable[(usable.index(self._scope) + by) % len(usable)]
        self._draw()

    @property
    def _usable_scopes(self) -> list[RuleScope]:
        return [scope for scope in SCOPES if not self._offer.why_not(self.pattern, scope)]

    def _use_possible_scope(self) -> None:
        """Fall back to the narrowest scope that the pattern can have, if it cannot have the chosen one."""
        if self._scope not in (usable := self._usable_scopes):
            self._scope = usable[0] if usable else RuleScope.SESSION

    def _edit(self) -> None:
        tool = self._offer.pending.call.name

        def done(pattern: ArgumentPattern | None) -> None:
            if pattern is None:
                return
            if pattern not in self._patterns:
                self._patterns.append(pattern)
            self._pattern = self._patterns.index(pattern)
            self._use_possible_scope()
            self._draw()

        question = Question[ArgumentPattern](
            "Edit the pattern",
            explain=f"It has to cover this call. A last {STAR} stands for further words that do no harm.",
            text=show_rule(tool, self.pattern),
            check=self._offer.parse,
            done="takes it",
        )
        self.app.push_screen(question, done)

    # Drawing

    def _draw(self) -> None:
        self._drawn = tuple(self._rows())
        self.query_one("#rule-choices", Static).update(Content("\n").join(self._drawn))
        self.query_one("#rule-note", Static).update(Content(self._note))
        # Names the scope, which may be scrolled out of a low window.
        approves = KeyHint("ctrl+s", f"approves, with a rule for {SCOPE_NAMES[self._scope]}")
        self.query_one(Legend).show(approves, KeyHint("e", "edit"), BACK)
        self._note = ""
        self.call_after_refresh(self._name_scroll_keys)

    @property
    def row_in_focus(self) -> Offset | None:
        """The place of the pattern or scope that was chosen last."""
        chosen = [at for at, row in enumerate(self._drawn) if row.plain.startswith(">")]
        if not chosen:
            return None
        region = self.query_one("#rule-choices").content_region
        above = self._drawn[: chosen[-1 if self._in_scopes else 0]]
        return region.offset + Offset(0, sum(len(row.wrap(max(1, region.width))) for row in above))

    def _name_scroll_keys(self) -> None:
        body = self.query_one(VerticalScroll)
        continues_below = body.max_scroll_y > body.scroll_offset.y
        self.query_one("#rule").border_subtitle = "PgDn more below" if continues_below else ""

    def _rows(self) -> Iterator[Content]:
        tool = self._offer.pending.call.name
        yield Content(f"Calls to allow without asking{' (Up, Down)' if len(self._patterns) > 1 else ''}:")
        for at, pattern in enumerate(self._patterns):
            yield _choice(f"{line(rule_text(tool, pattern))}   {_meaning(pattern)}", chosen=at == self._pattern)
            if isinstance(pattern, ExactArguments):
                # This dialog covers the call.
                yield Content.styled(f"    {cut(subject_line(self._offer.pending), most=_LONGEST_CALL)}", "$text-muted")
        yield Content("")
        yield Content(f"Where{' (Tab)' if len(self._usable_scopes) > 1 else ''}:")
        refused: dict[str, list[str]] = {}
        for scope in SCOPES:
            text = _scope_words(scope, self._offer)
            if reason := self._offer.why_not(self.pattern, scope):
                refused.setdefault(reason, []).append(text)
            else:
                yield _choice(text, chosen=scope is self._scope)
        for reason, places in refused.items():
            are = "are" if len(places) > 1 else "is"
            yield Content.styled(f"  {' and '.join(places)} {are} not possible: {line(reason)}", "$text-muted")
        yield Content("")
        if self._offer.may_run_workspace_code:
            yield Content.styled(_WORDS_ONLY, "$text-warning")
            yield Content("")
        yield from self._replayed()

    def _replayed(self) -> Iterator[Content]:
        """Yield what the rule would have allowed in this session."""
        if self._recorded is None:
            yield Content("Checking the recorded calls of this session …")
            return
        if not self._recorded:
            yield Content(_NOTHING_RECORDED)
            return
        found = self._offer.would_allow(self._recorded, self.pattern, self._scope)
        total = plural(len(self._recorded), "earlier call")
        if not found:
            yield Content(f"It would have allowed none of {total} in this session.")
            return
        yield Content(f"It would have allowed {len(found)} of {total} in this session:")
        for call in found[:MAX_LISTED]:
            yield Content(f"  {line(_subject(call))}{_fate_of_rule(call)}")
        if len(found) > MAX_LISTED:
            yield Content(f"  and {len(found) - MAX_LISTED} more")


def _choice(text: str, *, chosen: bool) -> Content:
    return Content.styled(f"{'>' if chosen else ' '} {text}", "bold" if chosen else "")


def _meaning(pattern: ArgumentPattern) -> str:
    match pattern:
        case ArgvPattern(words=words) if words[-1] == STAR:
            return "(and any further words that do no harm)"
        case ArgvPattern():
            return "(exactly this)"
        case AnyArguments():
            return "(every call)"
        case _:
            return ""


def _scope_words(scope: RuleScope, offer: RuleOffer) -> str:
    folder = path_of(offer.pending.facts.folder) if scope is RuleScope.FOLDER else ""
    return f"{SCOPE_NAMES[scope]} {show_path(folder)}".rstrip()


def _subject(call: RecordedCall) -> str:
    facts = call.facts
    return cut(facts.command or " ".join(facts.paths) or " ".join(facts.hosts) or facts.arguments, most=_LONGEST_CALL)


def _fate_of_rule(call: RecordedCall) -> str:
    return "  (it was denied)" if call.message.outcome is Outcome.DENIED else ""
