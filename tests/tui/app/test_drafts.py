"""What is typed in two windows on one conversation: neither takes it from the other, and whoever goes on finds it."""

from dataclasses import dataclass, field
from threading import Event
from typing import cast

from chatops.domain.ids import SessionId
from chatops.runtime.view import SessionView
from chatops.runtime.worker import WorkerThread
from chatops.tui.composer.composer import Composer
from chatops.tui.screens.drafts import Drafts
from chatops.wiring.stored import Settings
from tests.store.memory_store import MemoryStore
from tests.tui.app.fakes import FakeHost

ONE, OTHER = SessionId("20261121-101512-k3f9"), SessionId("20261121-101512-2222")


@dataclass
class Typed:
    """What stands in the composer."""

    full_text: str = ""

    def set_text(self, text: str) -> None:
        self.full_text = text


@dataclass
class Open:
    """Which conversation is open."""

    session_id: SessionId = ONE


@dataclass
class Window:
    """As much of a chat as its drafts ask for."""

    host: FakeHost
    reads_along: bool = False
    session: Open = field(default_factory=Open)
    composer: Typed = field(default_factory=Typed)

    def __post_init__(self) -> None:
        self.drafts = Drafts(cast(Composer, self.composer))
        self.shows(self.session)
        self.drafts.recall()

    @property
    def text(self) -> str:
        return self.composer.full_text

    def shows(self, session: Open) -> None:
        self.session = session
        self.drafts.show(self.host, cast(SessionView, session), followed=self.reads_along)

    def reads(self, along: bool) -> None:
        self.reads_along = along
        self.shows(self.session)

    def types(self, text: str) -> None:
        self.composer.full_text = text
        self.drafts.keep()


def test_a_window_that_reads_along_takes_nothing_from_the_one_that_drives() -> None:
    host = FakeHost()
    first, second = Window(host), Window(host, reads_along=True)
    first.types("typed where it is driven")
    second.types("typed while reading")
    second.types("")
    second.types("typed while reading")
    assert Window(FakeHost(drafts=dict(host.drafts))).text == "typed where it is driven"
    assert Window(host).text == "typed where it is driven\n\ntyped while reading"
    assert Window(host).text == "typed where it is driven\n\ntyped while reading", "once, and for good"
    assert Window(host, reads_along=True).text == ""


def test_who_reads_along_finds_what_was_typed_while_reading() -> None:
    host = FakeHost()
    Window(host, reads_along=True).types("half a thought")
    assert Window(host, reads_along=True).text == "half a thought"


def test_who_takes_over_gets_what_was_typed_there_before_what_is_typed_here() -> None:
    host = FakeHost()
    first, second = Window(host), Window(host, reads_along=True)
    first.types("there")
    second.types("here")
    first.reads(along=True)
    first.drafts.keep()
    second.reads(along=False)
    second.drafts.recall()
    assert second.text == "there\n\nhere"
    second.types("")
    first.types("there, and more")
    assert (host.drafts[ONE], host.read_along_drafts[ONE]) == ("", "there, and more")


def test_taking_over_changes_nothing_where_nothing_was_typed() -> None:
    host = FakeHost()
    window = Window(host, reads_along=True)
    window.types("here")
    window.reads(along=False)
    window.drafts.recall()
    assert window.text == "here"
    assert (host.drafts[ONE], host.read_along_drafts[ONE]) == ("here", "")


def test_what_was_typed_while_a_conversation_was_opened_comes_behind_its_draft() -> None:
    host = FakeHost(drafts={ONE: "before"})
    assert Window(host, composer=Typed("meanwhile")).text == "before\n\nmeanwhile"
    assert Window(host, composer=Typed("before, meanwhile")).text == "before, meanwhile"
    assert Window(host, composer=Typed("as before")).text == "before\n\nas before", "words that it has too are not it"


def test_a_draft_moves_along_when_its_conversation_gets_a_name() -> None:
    window = Window(FakeHost(), session=Open(SessionId("")))
    window.types("a")
    window.session.session_id = ONE
    window.types("ab")
    assert window.host.drafts == {"": "", ONE: "ab"}


def test_the_draft_of_a_conversation_that_is_left_stays_while_the_next_one_is_opened() -> None:
    window = Window(FakeHost())
    window.types("kept")
    window.composer.full_text, window.session.session_id = "", OTHER
    window.drafts.keep()
    assert window.host.drafts == {ONE: "kept"}


def test_what_is_stored_after_its_conversation_was_left_is_no_draft_in_any() -> None:
    window = Window(FakeHost())
    with window.drafts.until_stored("sent"):
        window.types("typed on")
        assert window.host.drafts == {ONE: "sent\n\ntyped on"}, "until it is stored it could be lost"
        window.shows(Open(OTHER))
        window.composer.full_text = ""
        window.drafts.recall()
        window.types("elsewhere")
        assert window.host.drafts[OTHER] == "elsewhere"
    assert window.host.drafts == {ONE: "typed on", OTHER: "elsewhere"}


def test_what_another_process_has_written_is_seen_unless_something_newer_waits_to_be_written() -> None:
    store, worker = MemoryStore(), WorkerThread()
    settings = Settings(store, worker)
    assert settings.fresh("a") is None
    store.set_setting("a", "theirs")
    assert (settings.get("a"), settings.fresh("a"), settings.get("a")) == (None, "theirs", "theirs")
    until = Event()
    worker.later(until.wait)
    settings.set("a", "ours")
    assert (store.setting("a"), settings.fresh("a")) == ("theirs", "ours")
    until.set()
    worker.close()
    assert (store.setting("a"), settings.fresh("a")) == ("ours", "ours")
