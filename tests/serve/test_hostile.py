"""Markup, control and bidirectional characters in every field that a model, tool, file, server or site fills."""

import re
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest

from chatops.config.paths import find_paths
from chatops.domain.events import AskReason
from chatops.domain.ids import CallId, RoundId
from chatops.domain.sandbox import Lack, SandboxSpec
from chatops.domain.sanitize import HIDDEN
from chatops.domain.tools import CallFacts, DelegationFacts, Interruption, Processes, ServerFacts, ToolCall
from chatops.engine.state import AwaitingDecision, CallState, InRound
from chatops.store.base import SessionInfo
from chatops.store.store import Store
from tests.serve.served import Served, read
from tests.store import storekit as kit
from tests.tui.app.test_call_sheet import NOT_SHOWN

MARK = "\"'></code><script>alert(1)</script><img src=x onerror=alert(1)><b style=color:red>{{ 7*7103 }}{% raw %}"
HIDE = "\u202e\u2066\u200b\x1b[2J\x07\x9b\x00\ufeff\r"
HOSTILE = f"{MARK}{HIDE}"
MULTI = f"{HOSTILE}\n{HOSTILE}\n"
DIFF = f"--- a\n+++ b\n@@ -1,2 +1,2 @@\n {HOSTILE}\n-{HOSTILE}1\n+{HOSTILE}2\n"
SERVER = ServerFacts(name=HOSTILE, origin=HOSTILE, tool=HOSTILE, description=MULTI)
ARGUMENTS = '{"command": "x", "<script>alert(2)</script>\\u202e": "y"}'

FACTS = CallFacts(arguments='{"command": "ls"}', command="ls", argv=("ls",), cwd="/w", workspace="/w", sandbox="basic")
FIELDS: dict[str, Any] = {
    "arguments": ARGUMENTS,
    "repairs": (HOSTILE,),
    "caution": HOSTILE,
    "reveals": HOSTILE,
    "cwd": f"/{HOSTILE}",
    "paths": (f"/w/{HOSTILE}", f"/{HOSTILE}"),
    "hosts": (HOSTILE,),
    "command": f"rm -rf {HOSTILE} && sudo {MULTI}",
    "interpreter": (HOSTILE, "-c"),
    "diff": DIFF,
    "hashes": (f"/w/{HOSTILE} 0123",),
    "sandbox": HOSTILE,
    "lacks": (Lack(by=HOSTILE, needs=SandboxSpec(hosts=(HOSTILE,), read=(f"/{HOSTILE}",))),),
    "extra": SandboxSpec(hosts=(HOSTILE,), env=(HOSTILE,)),
    "needs_user": HOSTILE,
    "definition": HOSTILE,
    "server": SERVER,
    "credentials": (HOSTILE,),
    "delegation": DelegationFacts(role=HOSTILE, model=HOSTILE, adds=(HOSTILE,), grant="g"),
}
NO_TEXT = frozenset({"network", "sandboxed"})
"""Fields whose value holds no text."""


@pytest.fixture
def store(shared: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """The store of the running server."""
    monkeypatch.setenv("CHATOPS_HOME", str(shared.home))
    paths = find_paths({"CHATOPS_HOME": str(shared.home)})
    paths.prepare()
    opened = Store(paths.store)
    yield opened
    opened.close()


def ask(
    store: Store, facts: CallFacts, *, tool: str = "shell_exec", session: SessionInfo | None = None, **more: Any
) -> str:
    """Let a call with these facts wait; its id."""
    session = session or store.create_session(workspace="/w", role="coder", persona="", title="t")
    turn = store.next_turn_id(session.id)
    step = kit.begun(store, turn, session.id)
    call = ToolCall(id=CallId(f"{turn}.1.1"), name=tool, arguments=facts.arguments)
    status = AwaitingDecision(facts=facts, digest="d" * 64, reason=AskReason.POLICY, why="tool asks")
    status = replace(status, **{name: more.pop(name) for name in ("reason", "why", "interruption") if name in more})
    round_id = RoundId(f"{turn}.1")
    said = {"said": "I list it.", "model": "local", **more}
    store.commit(
        kit.then(
            step,
            InRound(
                round_id=round_id, proposed_under=kit.a_grant(), calls=(CallState(call=call, status=status),), **said
            ),
        )
    )
    return call.id


def assert_inert(shared: Served, call: str, cookie: str, *, shows: bool = True) -> None:
    for path in (f"/call/{call}", "/"):
        answer = shared.get(path, cookie=cookie)
        assert answer.status == 200, (path, answer.text)
        page = read(answer.text)
        for tag, attributes in page.elements:
            assert tag != "script" or attributes == (("src", "/page.js"), ("defer", None))
            assert tag not in ("img", "b") or not attributes, (tag, attributes)
            assert not any(name.startswith("on") or name == "style" for name, _ in attributes)
        # What could hide or reorder is spelled: in the text, and also in attributes.
        assert not re.search(HIDDEN, answer.text), [hex(ord(char)) for char in re.findall(HIDDEN, answer.text)]
        assert "\r" not in answer.text.replace("\r\n", "\n")
        assert "49721" not in page.text or "{{ 7*7103 }}" in page.text
    if shows:
        text = read(shared.get(f"/call/{call}", cookie=cookie).text).text
        assert "<script>alert(" in text and "<U+202E>" in text


@pytest.fixture(scope="module")
def cookie(shared: Served) -> str:
    return shared.log_in()


@pytest.mark.parametrize("name", FIELDS)
def test_what_a_call_is_made_of_is_only_text(shared: Served, store: Store, cookie: str, name: str) -> None:
    facts = replace(FACTS, **{name: FIELDS[name]})
    assert_inert(shared, ask(store, facts), cookie)


def test_each_fact_is_tried() -> None:
    assert {one.name for one in fields(CallFacts)} == FIELDS.keys() | NOT_SHOWN | NO_TEXT


def test_what_is_said_about_a_call_is_only_text(shared: Served, store: Store, cookie: str) -> None:
    unknown = Interruption(call_id=CallId("1.1.1"), attempt=1, output=MULTI, processes=Processes.RUNNING, count=2)
    hostile = store.create_session(workspace=f"/{HOSTILE}", role=HOSTILE, persona=HOSTILE, title=HOSTILE)
    for call in (
        ask(store, FACTS, tool=HOSTILE),
        ask(store, FACTS, said=MULTI),
        ask(store, FACTS, model=HOSTILE),
        ask(store, FACTS, why=HOSTILE),
        ask(store, FACTS, reason=AskReason.OUTCOME_UNKNOWN, interruption=unknown),
        ask(store, FACTS, session=hostile),
    ):
        assert_inert(shared, call, cookie)


def test_a_page_about_nothing_shows_an_address_as_text(shared: Served, cookie: str) -> None:
    for path in (
        "/call/%3Cscript%3Ealert(1)%3C/script%3E",
        "/login/%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E%E2%80%AE",
    ):
        text = shared.get(path, cookie=cookie).text
        assert "<script>" not in text and "\u202e" not in text


def test_the_first_lines_of_a_long_call_do_not_hide_its_cautions(shared: Served, store: Store, cookie: str) -> None:
    facts = replace(FACTS, command="\n".join(["echo hello"] * 50 + ["sudo rm -rf x"]), sandboxed=True)
    page = shared.get(f"/call/{ask(store, facts)}", cookie=cookie).text
    assert page.index("rm deletes files") < page.index("echo hello") < page.index(">Approve once<")
