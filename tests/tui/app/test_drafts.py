"""Drafts of two windows on one session: neither overwrites the other, and the next owner finds both."""

from dataclasses import dataclass, field
from threading import Event
from typing import cast

from chatops.domain.ids import SessionId
from chatops.engine.effects import ComposerDraft
from chatops.runtime.services import WorkerThread
from chatops.runtime.view import SessionView
from chatops.tui.composer import Composer
from chatops.tui.screens.drafts import Drafts
from chatops.wiring.stored import Settings
from tests.store.storekit import memory_store
from tests.tui.app.fakes import FakeUser

ONE, OTHER = SessionId("20261121-101512-k3f9"), SessionId("20261121-101512-2222")


@dataclass
class Typed:
    """Text in the composer."""

    full_text: str = ""

    def set_text(self, text: str) -> None:
        self.full_text = text


@dataclass
class Open:
    """Which session is open."""

    session_id: SessionId = ONE


@dataclass
class Window:
    """As much of a chat as its drafts ask for."""

    user: FakeUser
    follows: bool = False
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
        self.drafts.show(self.user, cast(SessionView, session), followed=self.follows)

    def set_follows(self, follows: bool) -> None:
        self.follows = follows
        self.shows(self.session)

    def types(self, text: str) -> None:
        self.composer.full_text = text
        self.drafts.keep()


def test_the_draft_of_a_follower_does_not_replace_that_of_the_owner() -> None:
    user = FakeUser()
    first, second = Window(user), Window(user, follows=True)
    first.types("typed where it is driven")
    second.types("typed while reading")
    second.types("")
    second.types("typed while reading")
    assert Window(FakeUser(drafts=dict(user.drafts()))).text == "typed where it is driven"
    assert Window(user).text == "typed where it is driven\n\ntyped while reading"
    assert Window(user).text == "typed where it is driven\n\ntyped while reading", "once, and for good"
    assert Window(user, follows=True).text == ""


def test_a_follower_gets_its_own_draft_back() -> None:
    user = FakeUser()
    Window(user, follows=True).types("half a thought")
    assert Window(user, follows=True).text == "half a thought"


def test_after_a_takeover_the_owner_s_draft_comes_before_the_text_typed_here() -> None:
    user = FakeUser()
    first, second = Window(user), Window(user, follows=True)
    first.types("there")
    second.types("here")
    first.set_follows(follows=True)
    first.drafts.keep()
    second.set_follows(follows=False)
    second.drafts.recall()
    assert second.text == "there\n\nhere"
    second.types("")
    first.types("there, and more")
    assert (user.drafts()[ONE], user.drafts(followed=True)[ONE]) == ("", "there, and more")


def test_a_takeover_without_an_owner_s_draft_changes_nothing() -> None:
    user = FakeUser()
    window = Window(user, follows=True)
    window.types("here")
    window.set_follows(follows=False)
    window.drafts.recall()
    assert window.text == "here"
    assert (user.drafts()[ONE], user.drafts(followed=True)[ONE]) == ("here", "")


def test_text_typed_while_a_session_is_opened_comes_after_its_draft() -> None:
    user = FakeUser(drafts={ONE: "before"})
    assert Window(user, composer=Typed("meanwhile")).text == "before\n\nmeanwhile"
    assert Window(user, composer=Typed("before, meanwhile")).text == "before, meanwhile"
    assert Window(user, composer=Typed("as before")).text == "before\n\nas before", "words that it has too are not it"


def test_a_draft_moves_to_the_session_s_id_when_it_gets_one() -> None:
    window = Window(FakeUser(), session=Open(SessionId("")))
    window.types("a")
    window.session.session_id = ONE
    window.types("ab")
    assert window.user.drafts() == {"": "", ONE: "ab"}


def test_the_draft_of_the_previous_session_stays_while_the_next_one_is_opened() -> None:
    window = Window(FakeUser())
    window.types("kept")
    window.composer.full_text, window.session.session_id = "", OTHER
    window.drafts.keep()
    assert window.user.drafts() == {ONE: "kept"}


def test_a_message_stored_after_a_switch_of_sessions_is_no_draft() -> None:
    window = Window(FakeUser())
    with window.drafts.until_stored("sent") as leave:
        window.types("typed on")
        assert window.user.drafts() == {ONE: "sent\n\ntyped on"}, "until it is stored it could be lost"
        window.shows(Open(OTHER))
        window.composer.full_text = ""
        window.drafts.recall()
        window.types("elsewhere")
        assert window.user.drafts()[OTHER] == "elsewhere"
        assert leave() == ComposerDraft(setting=window.user.draft_setting(ONE, followed=False), text="typed on")
    assert window.user.drafts() == {ONE: "sent\n\ntyped on", OTHER: "elsewhere"}, "the commit leaves the rest"


def test_the_draft_is_left_by_a_message_in_the_commit_that_stores_it() -> None:
    window = Window(FakeUser())
    window.types("sent")
    with window.drafts.until_stored("sent") as leave:
        window.types("typed on")
        assert window.user.drafts() == {ONE: "sent\n\ntyped on"}
        assert leave() == ComposerDraft(setting=window.user.draft_setting(ONE, followed=False), text="typed on")
        window.types("typed on and on")
        assert window.user.drafts() == {ONE: "typed on and on"}, "stored after the commit"
    window.drafts.keep()
    assert window.user.drafts() == {ONE: "typed on and on"}


def test_a_message_sent_before_its_draft_was_stored_needs_no_other_draft() -> None:
    window = Window(FakeUser())
    with window.drafts.until_stored("sent") as leave:
        assert leave() is None
    assert window.user.drafts() == {}


def test_a_setting_of_another_process_is_read_unless_a_newer_one_is_being_written() -> None:
    store, worker = memory_store(), WorkerThread()
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
