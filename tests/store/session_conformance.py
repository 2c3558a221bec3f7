"""Tests that every store has to pass about sessions: copies, deletion, and data kept beside them.

The fixtures are those of `conformance`.
"""

import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from chatops.domain.decisions import Principal, RuleScope
from chatops.domain.errors import ConflictError, NoSuchSessionError, StoreError, UnreadableError
from chatops.domain.ids import MessageId, SessionId, TurnId
from chatops.domain.messages import AssistantMessage, Message, NoticeMessage, RoleSwitchMessage, Usage, UserMessage
from chatops.engine.effects import ComposerDraft
from chatops.engine.state import CallState
from chatops.store.base import JobRow, SessionInfo
from chatops.store.store import Store
from tests.store import storekit as kit
from tests.store.conformance import World


class SessionConformance:
    def test_a_new_session_has_an_id_from_the_time_and_what_it_was_given(self, store: Store, world: World) -> None:
        made = store.create_session(workspace="/w x", role="coder", persona="calm", title="T")
        assert re.fullmatch(r"20261121-101512-[a-z0-9]{4,10}", made.id)
        assert (made.workspace, made.role, made.persona, made.title) == ("/w x", "coder", "calm", "T")
        assert (made.head, made.messages, made.active_turn, made.last_turn, made.pending) == (None, 0, None, None, 0)
        assert made.created_at == made.updated_at == world.now
        assert store.session(made.id) == made

    def test_a_new_session_may_begin_with_messages(self, store: Store) -> None:
        messages = [kit.user(SessionId("elsewhere"), n=1), kit.user(SessionId("elsewhere"), n=2)]
        made = store.create_session(workspace="/w", role="r", persona="p", title="T", messages=messages)
        assert (made.title, made.messages, made.head) == ("T", 2, messages[-1].id)
        assert list(store.history(made.id)) == messages
        with pytest.raises(StoreError):
            store.create_session(workspace="/w", role="r", persona="p", messages=messages)
        assert [one.id for one in store.sessions()] == [made.id]

    def test_usage_of_each_day_and_model_leaves_unknown_prices_out(self, store: Store, world: World) -> None:
        def said(n: int, model: str, usage: Usage | None) -> AssistantMessage:
            return replace(kit.assistant("elsewhere", n=n), model=model, usage=usage)

        priced = Usage(input_tokens=10, output_tokens=5, cost=0.25)
        free = Usage(input_tokens=100, output_tokens=1)
        start = world.now
        old = [said(1, "a", priced)]
        store.create_session(workspace="/w", role="r", persona="p", messages=old)
        world.now += 3 * 24 * 3600
        new: list[Message] = [said(2, "a", priced), said(3, "a", free), said(4, "b", free), said(5, "c", None)]
        store.create_session(workspace="/w", role="r", persona="p", messages=[*new, kit.user("e", n=6)])
        store.create_session(workspace="/other", role="r", persona="p", messages=[said(7, "a", priced)])
        found = store.daily_usage(workspace="/w", since=start)
        assert [(row.model, row.tokens, row.cost, row.unpriced) for row in found] == [
            ("a", 116, 0.25, 1),
            ("b", 101, None, 1),
            ("a", 15, 0.25, 0),
        ]
        assert found[0].day == found[1].day > found[2].day
        assert store.daily_usage(workspace="/w", since=start + 1) == found[:2]

    def test_ids_differ_within_a_second(self, store: Store) -> None:
        ids = {store.create_session(workspace="/w", role="r", persona="p").id for _ in range(50)}
        assert len(ids) == 50

    def test_a_unique_prefix_finds_a_session_and_a_common_one_names_the_candidates(
        self, store: Store, world: World
    ) -> None:
        one = store.create_session(workspace="/w", role="r", persona="p")
        assert store.session(SessionId(one.id[:10])).id == one.id
        world.now += 3600
        two = store.create_session(workspace="/w", role="r", persona="p")
        assert store.session(SessionId(two.id[:13])).id == two.id
        with pytest.raises(StoreError, match="several") as caught:
            store.session(SessionId("2026"))
        assert one.id in str(caught.value)
        assert two.id in str(caught.value)

    @pytest.mark.parametrize("wanted", ["", "nope", "%", "_", "2026%"])
    def test_an_unknown_session_is_a_sentence_with_the_next_step(
        self, store: Store, session: SessionInfo, wanted: str
    ) -> None:
        with pytest.raises(NoSuchSessionError) as caught:
            store.session(SessionId(wanted))
        assert "sessions list" in caught.value.advice
        with pytest.raises(NoSuchSessionError):
            store.history(SessionId(wanted))

    def test_sessions_come_newest_activity_first_whatever_the_clock_says(self, store: Store, world: World) -> None:
        one = store.create_session(workspace="/a", role="r", persona="p")
        store.append_message(one.id, kit.user(one.id))
        world.now -= 315_360_000
        two = store.create_session(workspace="/b", role="r", persona="p")
        store.append_message(two.id, kit.user(two.id))
        assert [info.id for info in store.sessions()] == [two.id, one.id]
        store.append_message(one.id, kit.user(one.id, n=2))
        assert [info.id for info in store.sessions()] == [one.id, two.id]
        assert [info.id for info in store.sessions(workspace="/b")] == [two.id]
        assert [info.id for info in store.sessions(limit=1)] == [one.id]

    def test_a_session_without_messages_is_not_listed(self, store: Store, session: SessionInfo) -> None:
        assert store.sessions() == store.runs() == []
        assert store.session(session.id) == session
        store.append_message(session.id, kit.user(session.id))
        assert [info.id for info in store.sessions(workspace=session.workspace)] == [session.id]
        assert store.runs() == []

    def test_update_changes_the_given_settings_and_is_not_activity(self, store: Store, session: SessionInfo) -> None:
        store.append_message(session.id, kit.user(session.id))
        newer = store.create_session(workspace="/w", role="r", persona="p")
        store.append_message(newer.id, kit.user(newer.id))
        store.update_session(session.id, role="reviewer", model_pin="big")
        store.update_session(session.id, title="New title")
        store.update_session(session.id, persona="calm", model_pin="")
        info = store.session(session.id)
        assert (info.role, info.model_pin, info.persona, info.title) == ("reviewer", "", "calm", "New title")
        assert [info.id for info in store.sessions()] == [newer.id, session.id]
        with pytest.raises(NoSuchSessionError):
            store.update_session(SessionId("nope"), title="x")

    def test_the_title_is_the_first_line_of_the_first_user_message(self, store: Store, session: SessionInfo) -> None:
        store.append_message(session.id, RoleSwitchMessage(id=MessageId("x1"), before="a", after="b", model="m"))
        assert store.session(session.id).title == ""
        store.append_message(session.id, UserMessage(id=MessageId("x2"), text="\n\n  " + "long " * 40 + "\nsecond"))
        title = store.session(session.id).title
        assert title.startswith("long long")
        assert len(title) <= 60
        store.append_message(session.id, UserMessage(id=MessageId("x3"), text="other"))
        assert store.session(session.id).title == title

    def test_appended_messages_are_the_history_in_order(self, store: Store, session: SessionInfo) -> None:
        messages = [kit.user(session.id, f"text {n}", n) for n in range(5)]
        for message in messages:
            store.append_message(session.id, message)
        assert store.history(session.id) == tuple(messages)
        info = store.session(session.id)
        assert (info.head, info.messages) == (messages[-1].id, 5)

    def test_a_message_id_is_never_stored_twice(self, store: Store, session: SessionInfo) -> None:
        store.append_message(session.id, kit.user(session.id, "one"))
        with pytest.raises(StoreError):
            store.append_message(session.id, kit.user(session.id, "two"))
        assert store.history(session.id) == (kit.user(session.id, "one"),)

    def test_every_kind_of_message_and_any_text_survives(self, store: Store, session: SessionInfo) -> None:
        call = kit.a_call(TurnId(f"{session.id}.1"))
        texts = ["\ud83d lone", "\x00\x1b[31m\u202e", "é ü 漢字 🎉", '"\\', "", "a\r\nb"]
        messages = [UserMessage(id=MessageId(f"u{n}"), text=text) for n, text in enumerate(texts)]
        more: list[Message] = [
            *messages,
            replace(kit.assistant("a", "\udcff", calls=(call,)), reasoning="\ud800", usage=None),
            NoticeMessage(id=MessageId("n"), text="careful", advice="do this", level="error"),
            RoleSwitchMessage(id=MessageId("r"), before="a", after="b", model="m", added=("x",), suspended=2),
        ]
        for message in more:
            store.append_message(session.id, message)
        assert [message.text for message in store.history(session.id)[: len(texts)] if message.kind == "user"] == texts
        assert store.history(session.id)[-3:] == (
            replace(kit.assistant("a", "\udcff", calls=(call,)), reasoning="\ud800", usage=None),
            NoticeMessage(id=MessageId("n"), text="careful", advice="do this", level="error"),
            RoleSwitchMessage(id=MessageId("r"), before="a", after="b", model="m", added=("x",), suspended=2),
        )

    def test_lone_surrogates_survive_wherever_text_is_kept(self, store: Store) -> None:
        odd = "/w/\udcff name\ud83d"
        made = store.create_session(workspace=odd, role="r", persona="p", title=odd)
        store.set_setting(odd, odd)
        store.queue_message(made.id, odd)
        store.append_message(made.id, kit.user(made.id))
        assert store.session(made.id).title == odd
        assert [info.id for info in store.sessions(workspace=odd)] == [made.id]
        assert store.setting(odd) == odd
        assert store.queued_messages(made.id) == (odd,)

    def test_what_is_read_cannot_be_changed(self, store: Store, session: SessionInfo) -> None:
        store.append_message(session.id, kit.user(session.id, "mine"))
        (message,) = store.history(session.id)
        with pytest.raises(FrozenInstanceError):
            message.text = "other"  # type: ignore[union-attr, misc]

    def test_a_fork_shares_the_past_and_nothing_else(self, store: Store, session: SessionInfo) -> None:
        store.update_session(session.id, model_pin="big")
        for n in range(4):
            store.append_message(session.id, kit.user(session.id, f"{n}", n))
        fork = store.fork_session(session.id, before=kit.user(session.id, n=2).id)
        assert (fork.forked_from, fork.messages, fork.model_pin, fork.role) == (session.id, 2, "big", "coder")
        assert fork.id != session.id
        store.append_message(fork.id, kit.user(fork.id, "fork"))
        store.append_message(session.id, kit.user(session.id, "main", 9))
        assert [m.text for m in store.history(fork.id) if m.kind == "user"] == ["0", "1", "fork"]
        assert [m.text for m in store.history(session.id) if m.kind == "user"] == ["0", "1", "2", "3", "main"]

    def test_forks_are_named_after_their_source_and_the_message_that_each_ends_before(
        self, store: Store, session: SessionInfo
    ) -> None:
        for n, text in enumerate(("fix it", "test it", "ship it")):
            store.append_message(session.id, kit.user(session.id, text, n))
        first = store.fork_session(session.id, before=kit.user(session.id, n=2).id)
        second = store.fork_session(first.id, before=kit.user(session.id, n=1).id)
        assert [first.title, second.title] == ["fix it · before: ship it", "fix it · before: test it"]
        # Without the fork in between, it is a fork of the original; without that too, it is still one.
        store.delete_session(first.id)
        assert store.session(second.id).forked_from == session.id
        store.delete_session(session.id)
        assert store.session(second.id).forked_from == session.id
        assert kit.problems(store) == []

    def test_a_fork_may_belong_to_another_workspace(self, store: Store, session: SessionInfo) -> None:
        fork = store.fork_session(session.id, workspace="/another")
        assert (fork.workspace, fork.forked_from) == ("/another", session.id)
        assert store.session(session.id).workspace == session.workspace

    def test_a_fork_of_the_whole_session_takes_no_rules_of_its_session(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        step = kit.begun(store, turn, session.id)
        lasting = kit.remembered(scope=RuleScope.FOLDER)
        store.commit(kit.then(step, kit.finished(), kit.assistant(turn), rules=(kit.remembered(), lasting)))
        store.queue_message(session.id, "later")
        fork = store.fork_session(session.id)
        assert store.history(fork.id) == store.history(session.id)
        assert (fork.active_turn, fork.last_turn) == (None, None)
        assert kit.rules(store, session.id) == [kit.remembered(), lasting]
        assert kit.rules(store, fork.id) == [lasting]
        assert store.queued_messages(fork.id) == ()

    def test_a_fork_before_a_strange_message_is_refused_and_leaves_nothing(
        self, store: Store, session: SessionInfo
    ) -> None:
        other = store.create_session(workspace="/w", role="r", persona="p")
        store.append_message(other.id, kit.user(other.id))
        with pytest.raises(StoreError):
            store.fork_session(session.id, before=kit.user(other.id).id)
        assert [info.id for info in store.sessions()] == [other.id]

    def test_a_fork_before_the_first_message_is_empty(self, store: Store, session: SessionInfo) -> None:
        store.append_message(session.id, kit.user(session.id, "0", 0))
        fork = store.fork_session(session.id, before=kit.user(session.id, n=0).id)
        assert (fork.head, fork.messages, fork.forked_from) == (None, 0, session.id)
        # Its first exchange gives it a title.
        assert (store.session(session.id).title, fork.title) == ("0", "")
        assert store.history(fork.id) == ()

    def test_a_search_finds_messages_in_each_session_that_has_them(self, store: Store, session: SessionInfo) -> None:
        texts = ["Where is the ÄRGER?", "100% sure", "a\\b", "no \x00 NUL", "\ud800 half"]
        for n, text in enumerate(texts):
            store.append_message(session.id, kit.user(session.id, text, n))
        fork = store.fork_session(session.id, before=kit.user(session.id, n=1).id)
        other = store.create_session(workspace="/w", role="r", persona="p", title="Sure thing")
        store.append_message(other.id, kit.user(other.id, "nothing"))

        def found(text: str, **more: Any) -> set[SessionId]:
            return {hit.session.id for hit in store.search(text, **more)}

        assert found("ärger") == {session.id, fork.id}
        # The title of the copy names the message that it ends before.
        assert found("SURE") == {session.id, fork.id, other.id}
        assert found("%") == {session.id, fork.id}
        assert found("a\\B") == found("half") == {session.id}
        assert found('"') == found("a_b") == set()
        assert found("sure", workspace="/elsewhere") == set()
        assert len(store.search("e", limit=2)) == 2
        store.append_message(other.id, kit.user(other.id, "now with ärger", 2))
        assert found("ÄRGER") == {session.id, fork.id, other.id}
        store.delete_session(session.id)
        assert found("ÄRGER") == {fork.id, other.id}

    def test_an_empty_session_can_be_forked(self, store: Store, session: SessionInfo) -> None:
        fork = store.fork_session(session.id)
        assert (fork.head, fork.messages) == (None, 0)

    def test_deleting_leaves_forks_whole_and_the_decision_log(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        call = kit.a_call(turn)
        step = kit.begun(store, turn, session.id)
        ask = kit.then(step, kit.in_round(CallState(call=call, status=kit.awaiting())))
        store.commit(ask)
        fork = store.fork_session(session.id)
        store.commit(kit.then(ask, kit.finished(), kit.assistant(turn), decisions=(kit.record(call),)))
        store.delete_session(session.id)
        with pytest.raises(NoSuchSessionError):
            store.session(session.id)
        with pytest.raises(UnreadableError):
            store.load_turn(turn)
        assert [info.id for info in store.sessions()] == [fork.id]
        assert store.history(fork.id) == (kit.user(turn),)
        assert store.pending_calls() == []
        assert [row.call_id for row in store.decisions()] == [call.id]
        store.delete_session(fork.id)
        assert store.sessions() == []
        # Nothing is left of the messages: their ids are free.
        again = store.create_session(workspace="/w", role="r", persona="p")
        store.append_message(again.id, kit.user(turn))
        store.append_message(again.id, kit.assistant(turn))
        assert kit.problems(store) == []

    def test_deleting_a_fork_leaves_the_original(self, store: Store, session: SessionInfo) -> None:
        store.append_message(session.id, kit.user(session.id))
        fork = store.fork_session(session.id)
        store.append_message(fork.id, kit.user(fork.id))
        store.delete_session(fork.id)
        assert store.history(session.id) == (kit.user(session.id),)

    def test_deleting_the_original_leaves_a_fork_that_went_its_own_way(
        self, store: Store, session: SessionInfo
    ) -> None:
        for n in range(3):
            store.append_message(session.id, kit.user(session.id, f"{n}", n))
        fork = store.fork_session(session.id, before=kit.user(session.id, n=2).id)
        store.append_message(fork.id, kit.user(fork.id, "own"))
        store.delete_session(session.id)
        assert [m.text for m in store.history(fork.id) if m.kind == "user"] == ["0", "1", "own"]
        assert kit.problems(store) == []

    def test_queued_messages_keep_their_order(self, store: Store, session: SessionInfo) -> None:
        other = store.create_session(workspace="/w", role="r", persona="p")
        for text in ["one", "two", "one"]:
            store.queue_message(session.id, text)
        assert store.queued_messages(other.id) == ()
        assert [store.queued_messages(session.id) for _ in range(2)] == [("one", "two", "one")] * 2
        for wrong in (store.queued_messages, lambda session_id: store.queue_message(session_id, "x")):
            with pytest.raises(NoSuchSessionError):
                wrong(SessionId("nope"))

    def test_the_newest_text_is_taken_out_and_becomes_a_setting(self, store: Store, session: SessionInfo) -> None:
        other = store.create_session(workspace="/w", role="r", persona="p")
        for text in ["one", "two", "one"]:
            store.queue_message(session.id, text)
        store.queue_message(other.id, "theirs")
        assert store.take_queued_message(session.id, into="draft") == "one"
        assert store.queued_messages(session.id) == ("one", "two")
        assert store.setting("draft") == "one"
        assert [store.take_queued_message(session.id, into="draft") for _ in range(3)] == ["two", "one", None]
        assert store.setting("draft") == "one", "nothing was taken, nothing is stored"
        assert store.queued_messages(other.id) == ("theirs",)
        with pytest.raises(NoSuchSessionError):
            store.take_queued_message(SessionId("nope"), into="draft")

    def test_the_draft_that_a_message_leaves_is_stored_with_it_or_not_at_all(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        store.set_setting("draft", "one")
        left = ComposerDraft(setting="draft", text="typed on")
        store.queue_message(session.id, "one", draft=left)
        assert (store.queued_messages(session.id), store.setting("draft")) == (("one",), "typed on")
        with pytest.raises(NoSuchSessionError):
            store.queue_message(SessionId("nope"), "two", draft=replace(left, text=""))
        step = replace(kit.first(turn, session.id, text="one"), takes_queued=True, draft=replace(left, text="more"))
        store.commit(step)
        store.set_setting("draft", "and more")
        store.commit(step)
        assert store.setting("draft") == "and more", "a step that is stored already stores nothing"
        other = replace(kit.first(store.next_turn_id(session.id), session.id, parent=session.head), draft=left)
        with pytest.raises(ConflictError):
            store.commit(other)
        assert store.setting("draft") == "and more"

    def test_the_commit_that_starts_a_turn_with_a_queued_message_removes_it(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        other = store.create_session(workspace="/w", role="r", persona="p")
        for text in ["one", "one"]:
            store.queue_message(session.id, text)
        store.queue_message(other.id, "theirs")
        step = replace(kit.first(turn, session.id, text="one"), takes_queued=True)
        store.commit(step)
        store.commit(step)
        assert store.queued_messages(session.id) == ("one",)
        step = kit.then(step, kit.finished())
        store.commit(step)
        assert store.queued_messages(session.id) == ("one",)
        second = replace(kit.first(store.next_turn_id(session.id), session.id, parent=session.head), takes_queued=True)
        with pytest.raises(ConflictError):
            store.commit(second)
        assert store.queued_messages(session.id) == ("one",)
        assert store.queued_messages(other.id) == ("theirs",)

    def test_settings_are_kept_and_replaced(self, store: Store, opened: Callable[[], Store]) -> None:
        assert store.setting("default_model") is None
        store.set_setting("default_model", "local")
        store.set_setting("default_model", "")
        assert opened().setting("default_model") == ""

    def test_rules_are_remembered_once_and_can_be_taken_back(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        mine, other = kit.remembered(), kit.remembered(role="reviewer", source="c2")
        step = kit.begun(store, turn, session.id)
        step = kit.then(step, kit.awaiting_model(turn), rules=(mine, other))
        store.commit(step)
        step = kit.then(step, kit.awaiting_model(turn), rules=(mine,))
        store.commit(step)
        first, second = store.rules(session_id=session.id)
        assert [replace(row.rule, id="") for row in (first, second)] == [mine, other]
        assert (first.uses, first.used_at) == (0, None) and first.made_at > 0
        assert store.revoke_rule(first.rule.id)
        assert not store.revoke_rule(first.rule.id) and not store.revoke_rule("nobody")
        assert store.rules(session_id=session.id) == [second]
        store.commit(kit.then(step, kit.awaiting_model(turn), rules=(mine,)))
        assert kit.rules(store, session.id) == [other, mine]
        # The id of a revoked rule is not given again: the log names rules by it.
        assert first.rule.id not in {row.rule.id for row in store.rules()}

    def test_lasting_rules_outlive_their_session_and_are_of_one_user(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        folder, role = kit.remembered(scope=RuleScope.FOLDER), kit.remembered(scope=RuleScope.ROLE, uid=7)
        step = kit.begun(store, turn, session.id)
        store.commit(kit.then(step, kit.finished(), kit.assistant(turn), rules=(kit.remembered(), folder, role)))
        other = store.create_session(workspace="/w", role="r", persona="p")
        assert kit.rules(store, other.id) == [folder, role]
        assert kit.rules(store, other.id, uid=1000) == [folder]
        assert kit.rules(store, other.id, uid=7) == [role]
        assert kit.rules(store, other.id, uid=8) == []
        assert [row.rule.scope for row in store.rules(tool="web_fetch")] == [
            RuleScope.SESSION, RuleScope.FOLDER, RuleScope.ROLE,
        ]  # fmt: skip
        assert store.rules(tool="shell_exec") == []
        store.delete_session(session.id)
        assert kit.rules(store) == [folder, role]

    def test_a_use_of_a_rule_is_counted_and_logged_with_the_start_of_its_call(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        step = kit.begun(store, turn, session.id)
        step = kit.then(step, kit.awaiting_model(turn), rules=(kit.remembered(),))
        store.commit(step)
        (row,) = store.rules()
        call = kit.a_call(turn)
        by = Principal(uid=1000, rule=row.rule.id)
        started = kit.then(
            step, kit.in_round(CallState(call=call, status=kit.started())), decisions=(kit.record(call, by=by),)
        )
        store.commit(started)
        store.commit(started)
        (used,) = store.rules()
        assert used.uses == 1 and used.used_at is not None
        (entry,) = store.decisions()
        assert (entry.by.rule, entry.role, entry.call_id) == (row.rule.id, "coder", call.id)

    def test_a_session_is_a_job_as_long_as_its_turn_is_the_last_one(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        step = kit.begun(store, turn, session.id)
        assert (store.job(session.id), store.jobs()) == (None, [])
        job = JobRow(
            session=store.session(session.id),
            turn_id=turn,
            options="{}",
            uid=7,
            host="box",
            boot_id="b1",
            folder="1:2",
            level=2,
        )
        store.put_job(job)
        (found,) = store.jobs()
        assert found == replace(job, created_at=found.created_at) and found.created_at > 0
        store.update_job(session.id, not_started="key:K", seen=True)
        assert store.job(SessionId(session.id[:-1])) == replace(found, not_started="key:K", seen=True)
        store.put_job(job)
        assert store.jobs() == [found]
        store.commit(kit.then(step, kit.finished(), kit.assistant(turn)))
        assert [one.session.active_turn for one in store.jobs()] == [None]
        following = store.next_turn_id(session.id)
        store.commit(kit.first(following, session.id, parent=store.session(session.id).head))
        assert (store.job(session.id), store.jobs()) == (None, [])
        store.put_job(replace(job, turn_id=following))
        store.delete_session(session.id)
        assert store.jobs() == []
