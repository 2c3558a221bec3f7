"""The dialog that asks if the user trusts what a folder brings: each file with its digest, and on request its text."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import ClassVar

from chatops.config.trust import ASKED, SHOWN_DIGEST, ItemState, Listed, TrustQuestion, question_notices
from chatops.config.workspace_files import Item, ItemKind
from chatops.domain.sanitize import show_path
from chatops.tui.composer import Composer
from chatops.tui.dialogs.body import DialogFrame
from chatops.tui.dialogs.dialog_keys import AnswerKey, DialogKey, Room
from chatops.tui.dialogs.guarded import GuardedDialog
from chatops.tui.dialogs.key_gate import KeyKind
from chatops.tui.dialogs.rows import Description, Row, line
from chatops.tui.keys import KeyGroup, KeyLegend
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
_CAUTION_STATES = (ItemState.CHANGED, ItemState.UNUSABLE)


class TrustScreen(GuardedDialog):
    """Asks about everything at once. Esc answers nothing: the question comes again at the next start."""

    KEYS = (
        AnswerKey(
            "t",
            "trust",
            "trust all of it, once its end has been on screen",
            lambda self: "trust" if self.shows_all else None,
            needs_reading=True,
        ),
        AnswerKey(
            "d", "ignore", "ignore it; asks again when something changes", ("ignore, ask when it changes", "ignore")
        ),
        DialogKey("v", "toggle_texts", "show or hide the texts of the files", lambda self: self.texts_label),
        DialogKey(
            "escape", "go_back", "not now: ignored, and asked about at the next start", lambda self: self.escape_label
        ),
    )
    GROWS_WHEN_READ: ClassVar[bool] = True
    DONE: ClassVar[str] = "trusted"
    KEY_GROUP: ClassVar[KeyGroup] = "trust"

    def __init__(self, question: TrustQuestion, answer: StoreAnswer, composer: Composer) -> None:
        """Create the dialog for `question`, as it was read. `answer` is called at most once."""
        super().__init__(composer)
        self._question = question
        self._answer = answer
        self._texts_shown = question.kind is not None
        self.answered = False
        """True once an answer is stored."""

    def begin(self) -> None:
        """Show what the folder brings."""
        rows = tuple(_rows(self._question, texts=self._texts_shown))
        key = f"{self._question.digest} {self._texts_shown}"
        self.show_subject(Description(rows=rows, payload=len(rows)), key=key, seen=False)

    def why_not(self, key: DialogKey) -> str:
        """Return why there is nothing to decide, or why what is shown is not enough to trust it."""
        if key.kind >= KeyKind.DENY and not self._question.is_answerable:
            return "There is nothing to decide. /trust revoke takes back what you trust here."
        if isinstance(key, AnswerKey) and key.needs_reading and not self.shows_all:
            place = show_path(self._question.path)
            return f"Not trusted: this is more code than can be shown. Read the files, then: chatops trust {place}"
        return ""

    def _toggle_texts(self) -> None:
        self._texts_shown = not self._texts_shown
        self.begin()

    @property
    def shows_all(self) -> bool:
        """False if there is more code to decide on than is shown."""
        new = (listed.item for listed in self._question.listed if listed.state is not ItemState.TRUSTED)
        return self._question.kind is None or sum(len(item.data) for item in new) <= MAX_TEXT

    @property
    def _in_texts(self) -> bool:
        """True while the texts are shown that Esc leaves for the list."""
        return self._texts_shown and self._question.kind is None

    def _go_back(self) -> None:
        """Go back from the texts to the list, else leave without an answer."""
        if self._in_texts:
            self._toggle_texts()
        else:
            super()._go_back()

    def _trust(self) -> None:
        self.send(self._store_trust(trusted=True))

    def _ignore(self) -> None:
        self.send(self._store_trust(trusted=False))

    async def _store_trust(self, *, trusted: bool) -> str:
        changed = await self._answer(trusted)
        self.answered = True
        starts = self._question.kind is ItemKind.SERVER_START
        yes = "Starting now." if starts else "Trusted. It counts from the next message on."
        said = yes if trusted else "Ignored until it changes. /trust asks."
        show_notice(self.app, " ".join([*changed, said]))
        self.finish()
        return ""

    @property
    def texts_label(self) -> tuple[str, ...]:
        """What `v` does."""
        return "hide the texts" if self._texts_shown else "show the texts", "texts"

    @property
    def escape_label(self) -> tuple[str, ...]:
        """Where Esc goes."""
        if not self._question.is_answerable:
            return ("back",)
        return "back to the list" if self._in_texts else "not now", "not now"

    def frame(self) -> DialogFrame:
        """Return the title."""
        asks, names = _TITLES[self._question.kind]
        if not self._question.is_answerable:
            return DialogFrame(title=names, waits=False)
        return DialogFrame(title=asks if self.room is Room.USUAL else "Trust this folder?")

    def legend(self, unread: str) -> KeyLegend:
        """Return the legend of keys."""
        if not self._question.is_answerable:
            return self.hints("v escape", room=Room.USUAL)
        return self.hints("t d v escape", unread=unread)


def _rows(question: TrustQuestion, *, texts: bool) -> Iterator[Row]:
    yield Row(label="folder", text=line(question.path), exact=True)
    yield Row()
    bytes_left = MAX_TEXT if texts else 0
    # What is asked about comes first, what is trusted last.
    by_urgency = sorted(
        question.listed, key=lambda listed: (listed.state not in ASKED, listed.state is ItemState.TRUSTED)
    )
    for listed in by_urgency:
        yield from _item_rows(listed)
        if texts:
            yield from _text_rows(listed.item, most=bytes_left)
            bytes_left -= min(bytes_left, len(listed.item.data))
    yield Row()
    for notice in question_notices(question):
        yield Row(text=line(notice), tone="quiet")
    yield Row(text=_ADVICE[question.kind], tone="quiet" if question.kind is None else "caution")


def _item_rows(listed: Listed) -> Iterator[Row]:
    """Yield a file: its path, then state, kind, size and digest."""
    item = listed.item
    yield Row(text=line(item.path), tone="caution" if listed.state in _CAUTION_STATES else "heading")
    digest = f", {item.size:,} bytes, SHA-256 {item.digest[:SHOWN_DIGEST]}" if item.digest else ""
    yield Row(text=f"  {listed.state.value}: {item.kind.value}{digest}", tone="quiet")


def _text_rows(item: Item, *, most: int) -> Iterator[Row]:
    """Yield at most `most` bytes of a text, and how much is not shown."""
    shown = item.data[:most]
    for part in shown.decode("utf-8-sig", "replace").split("\n") if shown else ():
        yield Row(text=line(part), tone="code", exact=True)
    if len(shown) < len(item.data):
        yield Row(text=f"  {len(item.data) - len(shown):,} more bytes are not shown here.", tone="caution")
