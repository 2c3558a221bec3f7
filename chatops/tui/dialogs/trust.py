"""The dialog that asks if the user trusts what a folder brings: each file with its digest, and on request its text."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import ClassVar

from textual import on

from chatops.config.trust import ASKED, SHOWN_DIGEST, ItemState, Listed, TrustQuestion, question_notices
from chatops.config.workspace_files import Item, ItemKind
from chatops.domain.errors import ChatopsError
from chatops.domain.sanitize import sanitize, show_path
from chatops.tui.composer.composer import Composer
from chatops.tui.dialogs.framed import DialogFrame
from chatops.tui.dialogs.guarded import GuardedDialog
from chatops.tui.dialogs.payload import PayloadView
from chatops.tui.dialogs.rows import Description, Row, line, read_on
from chatops.tui.keys import KeyGroup
from chatops.tui.notice import show_notice

StoreAnswer = Callable[[bool], Awaitable[Sequence[str]]]
"""Stores the answer, True for trust. Returns sentences about what has changed since it was shown."""
MAX_TEXT = 200_000
"""Bytes of texts that are shown in all."""
_TITLES = {
    None: ("Trust what this folder brings?", "What this folder brings"),
    ItemKind.OWN_TOOL: ("Load your own tools?", "Your own tools"),
    ItemKind.SERVER_START: ("Start these MCP servers?", "MCP servers"),
}
"""Titles of the dialog, with something to decide and without."""
_ADVICE = {
    None: "Nothing is started by trusting it. Esc leaves all of it ignored.",
    ItemKind.OWN_TOOL: "Trust only code that you have read. Esc leaves all of it ignored.",
    ItemKind.SERVER_START: "Start only programs that you trust. Without them, turns continue without their tools.",
}
_MARKED = (ItemState.CHANGED, ItemState.UNUSABLE)


class TrustScreen(GuardedDialog):
    """Asks about everything at once. Esc answers nothing: the question comes again at the next start."""

    DECIDING: ClassVar[frozenset[str]] = frozenset("td")
    KEY_GROUP: ClassVar[KeyGroup] = "trust"

    def __init__(self, question: TrustQuestion, answer: StoreAnswer, composer: Composer) -> None:
        """Create the dialog for `question`, as it was read. `answer` is called at most once."""
        super().__init__(composer)
        self._question = question
        self._answer = answer
        self._texts_shown = question.kind is not None
        self._sending = False
        self.answered = False
        """True once an answer is stored."""

    def on_mount(self) -> None:
        """Start the pause, because a user who is typing has not read the dialog yet."""
        self._drawn = True
        self.fit()
        self.start_pause()
        self._describe()
        self.call_after_refresh(self.show_frame)

    def _describe(self) -> None:
        rows = tuple(_rows(self._question, texts=self._texts_shown))
        key = f"{self._question.digest} {self._texts_shown}"
        self.payload.show(Description(rows=rows, payload=len(rows)), key=key, seen=False)
        self.show_frame()

    def answer(self, key: str, *, typed: bool) -> None:
        """Handle one key."""
        match key:
            case _ if self._sending and key in self.DECIDING:
                self.not_taken("an answer is being stored")
            case "t" | "d" if not self._question.is_answerable:
                self.show_note("There is nothing to decide. /trust revoke takes back what you trust here.")
            case "t":
                self._trust()
            case "d":
                self._send(trusted=False)
            case "v":
                self._texts_shown = not self._texts_shown
                self._describe()
            case _ if typed:
                self.pause_again()
            case _:
                pass

    def go_back(self) -> None:
        """Go back from the texts to the list, else leave without an answer."""
        if self._texts_shown and not self._question.kind:
            self.answer("v", typed=True)
        else:
            super().go_back()

    def _trust(self) -> None:
        if self.too_small:
            self.show_note("Make the window larger: what is not shown cannot be trusted.")
        elif _unseen_code(self._question):
            place = show_path(self._question.path)
            self.show_note(
                f"Not trusted: this is more code than can be shown. Read the files, then: chatops trust {place}"
            )
        elif not self.payload.end_seen:
            self.payload.read_on()
            self.call_after_refresh(self.show_frame)
        else:
            self._send(trusted=True)

    def _send(self, *, trusted: bool) -> None:
        self._sending = True
        # Run on the app: a worker of this screen would be cancelled when the dialog closes.
        self.app.run_worker(self._store(trusted=trusted), group="decide")

    async def _store(self, *, trusted: bool) -> None:
        try:
            changed = await self._answer(trusted)
        except ChatopsError as error:
            self._sending = False
            self.not_answered(sanitize(error.full))
            return
        self.answered = True
        starts = self._question.kind is ItemKind.SERVER_START
        yes = "Starting now." if starts else "Trusted. It counts from the next message on."
        said = yes if trusted else "Ignored until it changes. /trust asks."
        show_notice(self.app, " ".join([*changed, said]))
        self.finish()

    def frame(self) -> DialogFrame:
        """Return title and keys."""
        left = 0 if self.payload.end_seen else self.payload.lines_below
        texts = "v hide the texts" if self._texts_shown else "v show the texts"
        kind = self._question.kind
        leave = "Esc back to the list" if self._texts_shown and kind is None else "Esc not now"
        if not self._question.is_answerable:
            return DialogFrame(title=_TITLES[kind][1], keys=f"{texts}   Esc back", waits=False)
        if self.has_class("-narrow"):
            first = f"t {read_on(left, short=True)}" if left else "t trust"
            return DialogFrame(title="Trust this folder?", keys=f"{first}  d ignore  v texts  Esc not now")
        trust = f"t {read_on(left)}" if left else "t trust"
        rest = f"   d ignore, ask when it changes   {texts}   {leave}"
        return DialogFrame(title=_TITLES[kind][0], keys=f"{trust}{rest}", keys_when_read=f"t trust{rest}")

    @on(PayloadView.EndSeen)
    def end_seen(self, event: PayloadView.EndSeen) -> None:
        """Let `t` trust, now that all of it has been on screen."""
        event.stop()
        self.show_frame()


def _unseen_code(question: TrustQuestion) -> bool:
    """Return True if there is more code to decide on than is shown."""
    new = sum(len(one.item.data) for one in question.listed if one.state is not ItemState.TRUSTED)
    return question.kind is not None and new > MAX_TEXT


def _rows(question: TrustQuestion, *, texts: bool) -> Iterator[Row]:
    yield Row(label="folder", text=line(question.path), exact=True)
    yield Row()
    left = MAX_TEXT if texts else 0
    for one in sorted(question.listed, key=lambda one: (one.state not in ASKED, one.state is ItemState.TRUSTED)):
        yield from _item(one)
        if texts:
            yield from _text(one.item, most=left)
            left -= min(left, len(one.item.data))
    yield Row()
    for notice in question_notices(question):
        yield Row(text=line(notice), tone="quiet")
    yield Row(text=_ADVICE[question.kind], tone="quiet" if question.kind is None else "caution")


def _item(one: Listed) -> Iterator[Row]:
    """Yield a file: its path, then state, kind, size and digest."""
    item, marked = one.item, one.state in _MARKED
    yield Row(text=line(item.path), tone="caution" if marked else "heading")
    digest = f", {item.size:,} bytes, SHA-256 {item.digest[:SHOWN_DIGEST]}" if item.digest else ""
    yield Row(text=f"  {one.state.value}: {item.kind.value}{digest}", tone="quiet")


def _text(item: Item, *, most: int) -> Iterator[Row]:
    """Yield at most `most` bytes of a text, and how much is not shown."""
    shown = item.data[:most]
    for part in shown.decode("utf-8-sig", "replace").split("\n") if shown else ():
        yield Row(text=line(part), tone="code", exact=True)
    if len(shown) < len(item.data):
        yield Row(text=f"  {len(item.data) - len(shown):,} more bytes are not shown here.", tone="caution")
