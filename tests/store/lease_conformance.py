"""Tests that every store has to pass about leases; the fixtures are those of `conformance`."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from chatops.domain.errors import ConflictError, NoSuchSessionError, SessionHeldError
from chatops.domain.ids import SessionId, TurnId
from chatops.engine.state import CallState
from chatops.store.base import Holder, SessionInfo
from chatops.store.store import Store
from tests.store import storekit as kit
from tests.store.conformance import World, holder


class LeaseConformance:
    def test_a_session_held_by_a_living_process_is_refused_and_says_by_whom(
        self, store: Store, session: SessionInfo, world: World
    ) -> None:
        store.acquire_lease(session.id, holder(pid=41), ttl_s=30)
        world.now += 3600
        with pytest.raises(SessionHeldError) as caught:
            store.acquire_lease(session.id, holder(pid=42))
        assert "host box" in str(caught.value)
        assert "pid 41" in str(caught.value)
        assert "41" in caught.value.advice

    def test_the_lease_of_a_dead_process_of_this_host_is_void(
        self, store: Store, session: SessionInfo, world: World
    ) -> None:
        store.acquire_lease(session.id, holder(pid=41), ttl_s=1_000)
        world.dead.add(41)
        store.acquire_lease(session.id, holder(pid=42))
        with pytest.raises(SessionHeldError):
            store.acquire_lease(session.id, holder(pid=43))

    def test_a_session_that_another_process_holds_is_not_deleted(
        self, store: Store, session: SessionInfo, world: World
    ) -> None:
        store.acquire_lease(session.id, holder(pid=41))
        with pytest.raises(SessionHeldError, match="pid 41"):
            store.delete_session(session.id)
        assert store.session(session.id) == session
        world.dead.add(41)
        store.delete_session(session.id)
        with pytest.raises(NoSuchSessionError):
            store.session(session.id)

    def test_the_lease_of_another_host_counts_until_it_expires(
        self, store: Store, session: SessionInfo, world: World
    ) -> None:
        token = store.acquire_lease(session.id, holder(host="far", pid=41), ttl_s=30)
        world.dead.add(41)
        world.now += 29
        with pytest.raises(SessionHeldError) as caught:
            store.acquire_lease(session.id, holder(pid=42))
        assert "far" in str(caught.value)
        assert "pid 41" in str(caught.value)
        store.renew_lease(session.id, token, ttl_s=30)
        world.now += 30
        store.acquire_lease(session.id, holder(pid=42))

    def test_a_process_in_another_container_of_this_host_is_no_dead_one(
        self, store: Store, session: SessionInfo, world: World
    ) -> None:
        """Its number means nothing here, where it is free or another process has it."""
        store.acquire_lease(session.id, holder(pid=41, boot="b1/4026532451"), ttl_s=30)
        world.dead.add(41)
        found = store.lease(session.id)
        assert found is not None and found.holder.pid == 41
        with pytest.raises(SessionHeldError, match="pid 41"):
            store.acquire_lease(session.id, holder(pid=42))
        world.now += 30
        token = store.acquire_lease(session.id, holder(pid=42, boot="b1/4026532452"), ttl_s=30)
        with pytest.raises(SessionHeldError, match="pid 42"):
            store.acquire_lease(session.id, holder(pid=41, boot="b1/4026532451"))
        # Of an earlier boot none is left, wherever it was.
        store.release_lease(session.id, holder(pid=42, boot="b1/4026532452"), token)
        store.acquire_lease(session.id, holder(pid=41, boot="b0/4026532451"), ttl_s=30)
        store.acquire_lease(session.id, holder(pid=42))

    def test_a_lease_from_a_clock_far_ahead_does_not_lock_for_ever(
        self, store: Store, session: SessionInfo, world: World
    ) -> None:
        store.acquire_lease(session.id, holder(host="far"), ttl_s=30)
        world.now -= 315_360_000
        store.acquire_lease(session.id, holder(pid=42))

    def test_release_gives_back_only_ones_own(self, store: Store, session: SessionInfo) -> None:
        token = store.acquire_lease(session.id, holder(pid=41))
        store.release_lease(session.id, holder(pid=42), token)
        store.release_lease(session.id, holder(pid=41))
        store.release_lease(session.id, holder(pid=41), "another token")
        store.release_lease(SessionId("nope"), holder(pid=42))
        with pytest.raises(SessionHeldError):
            store.acquire_lease(session.id, holder(pid=42))
        store.release_lease(session.id, holder(pid=41), token)
        store.acquire_lease(session.id, holder(pid=42))
        with pytest.raises(NoSuchSessionError):
            store.acquire_lease(SessionId("nope"), holder())

    def test_only_a_lease_that_is_there_is_renewed(self, store: Store, session: SessionInfo, world: World) -> None:
        token = store.acquire_lease(session.id, holder(pid=41), ttl_s=30)
        store.renew_lease(session.id, token, ttl_s=1_000)
        found = store.lease(session.id)
        assert found is not None and found.expires_at == world.now + 1_000
        store.seize_lease(session.id, holder(pid=42), of=holder(pid=41))
        store.renew_lease(session.id, token)
        assert _held_by(store, session) == holder(pid=42)
        world.dead.add(42)
        store.renew_lease(session.id, token)
        assert store.lease(session.id) is None
        store.release_lease(session.id, holder(pid=42))
        store.renew_lease(session.id, token)
        store.renew_lease(SessionId("nope"), token)
        assert store.lease(session.id) is None

    def test_other_processes_see_the_owner_of_a_session_and_its_start(
        self, store: Store, opened: Callable[[], Store], session: SessionInfo, world: World
    ) -> None:
        assert opened().lease(session.id) is None
        token = store.acquire_lease(session.id, holder(pid=41), ttl_s=30)
        taken = world.now
        world.now += 20
        store.renew_lease(session.id, token, ttl_s=30)
        found = opened().lease(session.id)
        assert found is not None
        assert (found.holder, found.since, found.expires_at) == (holder(pid=41), taken, world.now + 30)
        world.dead.add(41)
        assert opened().lease(session.id) is None
        with pytest.raises(NoSuchSessionError):
            store.lease(SessionId("nope"))

    def test_a_request_lasts_until_it_is_withdrawn_or_the_owner_changes(
        self, store: Store, opened: Callable[[], Store], session: SessionInfo
    ) -> None:
        other = opened()
        other.request_lease(session.id, holder(pid=42))
        assert store.lease(session.id) is None
        token = store.acquire_lease(session.id, holder(pid=41))
        other.request_lease(session.id, holder(pid=42))
        store.renew_lease(session.id, token)
        assert _asked_by(store, session) == holder(pid=42)
        store.withdraw_request(session.id, holder(pid=43))
        assert _asked_by(other, session) == holder(pid=42)
        other.withdraw_request(session.id, holder(pid=42))
        assert _asked_by(store, session) is None
        other.request_lease(session.id, holder(pid=42))
        store.release_lease(session.id, holder(pid=41), token)
        other.acquire_lease(session.id, holder(pid=42))
        assert _asked_by(store, session) is None

    def test_a_lease_is_seized_only_from_the_owner_that_was_named(self, store: Store, session: SessionInfo) -> None:
        store.acquire_lease(session.id, holder(pid=41))
        with pytest.raises(SessionHeldError, match="41"):
            store.seize_lease(session.id, holder(pid=42), of=holder(pid=40))
        store.seize_lease(session.id, holder(pid=42), of=holder(pid=41))
        with pytest.raises(SessionHeldError, match="42"):
            store.acquire_lease(session.id, holder(pid=41))
        store.release_lease(session.id, holder(pid=41))
        store.seize_lease(session.id, holder(pid=42), of=holder(pid=41))
        assert _held_by(store, session) == holder(pid=42)

    def test_nothing_is_stored_by_a_process_from_which_the_session_was_taken(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        call = kit.a_call(turn)
        waiting = kit.pending_turn(store, session, turn)
        token = store.acquire_lease(session.id, holder(pid=77))
        store.seize_lease(session.id, holder(pid=42), of=holder(pid=77))
        begun = kit.then(waiting, kit.in_round(CallState(call=call, status=kit.started())), effects=(kit.run(call),))
        with pytest.raises(ConflictError, match="pid 42"):
            store.commit(begun, token)
        with pytest.raises(ConflictError, match="pid 42"):
            store.append_message(session.id, kit.user("divider"), token)
        assert store.journal(turn) == []
        assert store.load_turn(turn).seq == waiting.state.seq
        store.release_lease(session.id, holder(pid=42))
        store.commit(begun)
        assert [row.attempt for row in store.journal(turn)] == [1]

    def test_the_same_process_owns_a_session_once(self, store: Store, session: SessionInfo) -> None:
        token = store.acquire_lease(session.id, holder(pid=41))
        with pytest.raises(SessionHeldError, match="already"):
            store.acquire_lease(session.id, holder(pid=41))
        found = store.lease(session.id)
        assert found is not None and found.token == token

    def test_a_reserved_lease_is_acquired_by_whom_it_is_reserved_for(self, store: Store, session: SessionInfo) -> None:
        store.reserve_lease(session.id, holder(pid=41))
        with pytest.raises(SessionHeldError, match="41"):
            store.acquire_lease(session.id, holder(pid=42))
        assert store.acquire_lease(session.id, holder(pid=41))
        with pytest.raises(SessionHeldError):
            store.reserve_lease(session.id, holder(pid=42))

    def test_an_owner_that_lost_a_session_stores_nothing_although_its_process_owns_it_again(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        waiting = kit.pending_turn(store, session, turn)
        begun = kit.then(waiting, waiting.state.phase)
        first = store.acquire_lease(session.id, holder(pid=41))
        store.seize_lease(session.id, holder(pid=42), of=holder(pid=41))
        between = store.acquire_lease(session.id, holder(pid=42))
        store.seize_lease(session.id, holder(pid=41), of=holder(pid=42))
        second = store.acquire_lease(session.id, holder(pid=41))
        for stale in (first, between, ""):
            with pytest.raises(ConflictError):
                store.commit(begun, stale)
            store.renew_lease(session.id, stale, ttl_s=1e6)
            store.release_lease(session.id, holder(pid=41), stale)
        store.commit(begun, second)

    def test_a_machine_is_not_known_by_its_name(self, store: Store, session: SessionInfo, world: World) -> None:
        namesake = replace(holder(pid=41), machine="another machine of that name")
        token = store.acquire_lease(session.id, namesake, ttl_s=30)
        world.dead.add(41)
        with pytest.raises(SessionHeldError, match="another machine"):
            store.acquire_lease(session.id, holder(pid=42))
        store.release_lease(session.id, namesake, token)
        # And a machine that was given another name is the same one.
        store.acquire_lease(session.id, replace(holder(pid=41), host="renamed"), ttl_s=30)
        store.acquire_lease(session.id, holder(pid=42))

    def test_a_holder_is_asked_to_stop_and_the_next_one_is_not(self, store: Store, session: SessionInfo) -> None:
        store.ask_to_stop(session.id)
        token = store.acquire_lease(session.id, holder(pid=41))
        assert not getattr(store.lease(session.id), "stop", None)
        store.ask_to_stop(session.id)
        store.renew_lease(session.id, token)
        assert getattr(store.lease(session.id), "stop", None)
        store.seize_lease(session.id, holder(pid=42), of=holder(pid=41))
        assert not getattr(store.lease(session.id), "stop", None)
        store.ask_to_stop(session.id)
        store.ask_to_stop(session.id, stop=False)
        assert not getattr(store.lease(session.id), "stop", None)

    def test_a_session_is_followed_while_the_process_that_shows_it_lives(
        self, store: Store, session: SessionInfo, world: World
    ) -> None:
        assert not store.is_followed(session.id)
        store.mark_followed(session.id, holder(pid=41))
        assert store.is_followed(session.id)
        world.dead.add(41)
        assert not store.is_followed(session.id)
        store.mark_followed(session.id, holder(pid=42))
        store.mark_followed(session.id, None)
        assert not store.is_followed(session.id)

    @pytest.mark.parametrize("damaged", ["[", "3", "[1]", '["http://a", 3]'])
    def test_a_damaged_address_names_no_page(self, store: Store, damaged: str) -> None:
        store.announce_page("http://a", holder(pid=41))
        assert store.page_address() == "http://a"
        store.set_setting("desk", damaged)
        assert store.page_address() == ""


def _asked_by(store: Store, session: SessionInfo) -> Holder | None:
    lease = store.lease(session.id)
    assert lease is not None
    return lease.requested_by


def _held_by(store: Store, session: SessionInfo) -> Holder | None:
    lease = store.lease(session.id)
    return None if lease is None else lease.holder
