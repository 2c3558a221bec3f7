"""Whatever a server says, over whole conversations: each request is one that a strict server takes."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chatops.domain.decisions import Approved, Rejected
from chatops.domain.events import TurnStatus
from chatops.runtime.session import Session
from chatops.store.export import to_openai
from chatops.wiring.app import App
from chatops.wiring.stored import Options
from tests.e2e.installation import EFFECT, answers_each_call_once
from tests.faults.entry_points import Provider, patient_registry
from tests.faults.shapes import FINISH, fn, no_calls, one_call, piece, two_calls, words
from tests.support.fake_openai import Call, Reply, calls, delta, error, says, stream, violations_of
from tests.support.figures import Count
from tests.support.properties import examples

REFUSED = "sessions refused by a strict server"
NEVER = {"command": EFFECT}
"""Texts that occur only in replies without calls to run."""
ODD_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=12)
PATHS = st.fixed_dictionaries({"path": st.sampled_from(["note.txt", "gone.txt", "\x1b[2J", ""])})
ARGUMENTS = st.one_of(
    ODD_TEXT,
    PATHS.map(json.dumps),
    st.sampled_from(["", "{", "[]", "null", "NaN", '{"path": "note.txt"} {}', "\ud800"]),
)
NAMES = st.one_of(
    ODD_TEXT, st.sampled_from(["file_read", "scratch_write", "shell_exec ", "functions.file_read", "a" * 300])
)


def shape(shapes: Mapping[str, Reply], name: str) -> Reply:
    return shapes[name]


def any_of(make: st.SearchStrategy[Mapping[str, Reply]], names: list[str]) -> st.SearchStrategy[Reply]:
    return st.builds(shape, make, st.sampled_from(names))


REPLIES: st.SearchStrategy[Reply] = st.one_of(
    any_of(st.builds(one_call, st.just("file_read"), PATHS), list(one_call("", {}))),
    any_of(st.builds(two_calls, st.just("file_read"), PATHS, PATHS), list(two_calls("", {}, {}))),
    any_of(st.just(no_calls("shell_exec", NEVER)), list(no_calls("", {}))),
    any_of(ODD_TEXT.map(words), list(words(""))),
    st.lists(st.builds(Call, name=NAMES, arguments=ARGUMENTS, id=ODD_TEXT), min_size=1, max_size=4).map(
        lambda made: calls(*made)
    ),
    st.builds(lambda name, text: stream(piece(**fn(name, text, index=0)), FINISH), NAMES, ARGUMENTS),
    st.builds(says, ODD_TEXT),
    st.just(stream(delta(reasoning_content="Hm."), delta(finish="stop"))),
    st.just(stream(delta("half"), done=False)),
    st.just(error(400, "no")),
)
TURNS = st.lists(
    st.tuples(
        st.lists(REPLIES, min_size=1, max_size=3), st.lists(st.booleans(), min_size=4, max_size=4), st.booleans()
    ),
    min_size=1,
    max_size=3,
)


async def converse(app: App, provider: Provider, turns: list[tuple[list[Reply], list[bool], bool]]) -> None:
    """Some turns with these replies, each call answered with yes or no; some turns after a restart; then a good one."""
    session = await app.open_session(None, attended=False)
    for replies, answers, again in turns:
        await take_turn(session, provider, replies, answers)
        if again:
            await session.aclose()
            session = await app.open_session(session.session_id, attended=False)
    await take_turn(session, provider, [], [])
    assert session.snapshot().status is TurnStatus.ANSWERED
    assert provider.server.violations == []
    assert answers_each_call_once(provider.requests[-1])
    stored = json.loads(to_openai(app.store.history(session.session_id)))
    assert violations_of({"messages": stored}) == []
    await session.aclose()


async def take_turn(session: Session, provider: Provider, replies: list[Reply], answers: list[bool]) -> None:
    provider.script(*replies)
    await session.submit("go on")
    await session.settle()
    left = [*answers]
    while pending := session.pending:
        decision = Approved() if left and left.pop() else Rejected(reason="no")
        await session.decide(pending[0].call.id, digest=pending[0].digest, decision=decision)
        await session.settle()


@pytest.mark.more
@pytest.mark.fault("C30")
def test_every_request_is_one_that_a_strict_server_takes(tmp_path: Path, figure: Count) -> None:
    workspace = tmp_path / "project"
    workspace.mkdir()
    (workspace / "note.txt").write_text("The invoice is due on Friday.\n")
    with Provider() as provider, asyncio.Runner() as loop:
        registry = tmp_path / "registry.json"
        registry.write_text(json.dumps(patient_registry(provider.server.url)))
        app = App(Options(registry=registry, workspace=workspace, role="coder", via="headless"))

        @settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(turns=TURNS)
        def holds(turns: list[tuple[list[Reply], list[bool], bool]]) -> None:
            loop.run(converse(app, provider, turns))

        try:
            holds()
        finally:
            figure(REFUSED, bad=bool(provider.server.violations), of=len(app.store.sessions(limit=100_000)))
            loop.run(app.aclose())
    assert not (workspace / "count.txt").exists()
