"""Output of a chat, and the place where it is stored."""

from contextlib import closing
from pathlib import Path

from chatops.domain.messages import AssistantMessage, UserMessage
from chatops.store.recovery import open_readable
from chatops.store.store import Store
from tests.e2e.installation import ChatTerminal, Installation
from tests.faults.entry_points import FaultyChat, Provider


def ready(installation: Installation, provider: Provider, terminal: ChatTerminal) -> FaultyChat:
    terminal.ready("coder")
    return FaultyChat(installation, provider, terminal)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def goes_well(chat: FaultyChat, path: Path) -> None:
    """The next turn works, and is stored to its end: from here on the chat may be killed."""
    chat.assert_well()

    def at_rest(_: str) -> bool:
        rows, _salvage = open_readable(path, unsaved="only read")
        with closing(Store(rows)) as store:
            return all(info.active_turn is None for info in store.sessions())

    chat.terminal.wait_until(at_rest, what="the turn to be stored")


def said(path: Path) -> list[str]:
    """The beginnings of what was said in the one conversation of a store."""
    rows, _ = open_readable(path, unsaved="only read")
    with closing(Store(rows)) as store:
        (info,) = store.sessions()
        history = store.history(info.id)
    return [m.text[:20] for m in history if isinstance(m, UserMessage | AssistantMessage) and m.text]
