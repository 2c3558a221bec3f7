"""A session and a workspace that follow a script, so that the screen can be tested without an engine."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import cast
from unittest.mock import patch

from chatops.config.prompt_files import Memories
from chatops.config.trust import ItemState, Listed, TrustQuestion
from chatops.config.workspace_files import Item, ItemKind, ReadFault
from chatops.contained.text import Change, ContainedReview
from chatops.domain.decisions import Decision, Principal, RuleScope
from chatops.domain.errors import ChatopsError, ConfigError
from chatops.domain.events import (
    ApprovalRequested,
    AskReason,
    CallDecided,
    CallProposed,
    Event,
    Notice,
    PendingCall,
    Published,
    RoleSwitched,
    RoundStarted,
    Status,
    TextDelta,
    ThoughtFinished,
    TurnFinished,
    TurnPaused,
    TurnStarted,
    TurnStatus,
)
from chatops.domain.files import FileRef
from chatops.domain.ids import CallId, MessageId, RoundId, SessionId, TurnId, turn_of
from chatops.domain.messages import Message, RoleSwitchMessage, Usage, UserMessage
from chatops.domain.model import ModelTarget
from chatops.domain.sandbox import SandboxNote
from chatops.domain.tools import (
    BUILT_IN_TOOLS,
    NO_CAPABILITIES,
    AccessLevel,
    CallFacts,
    Capabilities,
    Problem,
    ToolCall,
    ToolSpec,
    Verdict,
    built_in_capabilities,
)
from chatops.engine.effects import ComposerDraft
from chatops.engine.replay import replay
from chatops.engine.state import TurnState
from chatops.engine.workflow.state import WorkflowState
from chatops.policy.grant import Grant
from chatops.policy.prompt import PromptLayer
from chatops.policy.verdicts import Layer, Rule
from chatops.runtime.message_queue import MessageQueue
from chatops.runtime.rule_offer import RecordedCall, RuleOffer
from chatops.runtime.session import Session
from chatops.runtime.settings import SessionSettings
from chatops.runtime.view import SessionView, Snapshot
from chatops.runtime.workflow import WorkflowRun
from chatops.store.base import DailyUsage, DecisionRow
from chatops.tools.picture import Picture, Raster
from chatops.wiring.all_pending import AllPending, WaitingCall
from chatops.wiring.explain import RightsMatrix, SessionRights
from chatops.wiring.first_session import FirstSession
from chatops.wiring.jobs import ChatJobs
from chatops.wiring.rows import HitRow, ModelRow, RoleRow, RuleItem, RunRow, SessionRow, WorkflowRow
from chatops.wiring.sessions import Runs, SessionList
from chatops.wiring.stored import Settings
from chatops.wiring.user_state import UserState
from chatops.wiring.workspace import TrustQuestions, Workspace

SESSION = SessionId("20261121-101512-k3f9")
TURN = TurnId(f"{SESSION}.1")
ROUND = RoundId(f"{TURN}.1")
NOWHERE = Path("/nonexistent")
ANA = Principal(uid=4242, login="ana", via="tui")


class Clock:
    """Seconds that pass only when a test says so, for the app and for the times of its events."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds

    def on_events(self) -> AbstractContextManager[object]:
        """Let Textual stamp its events with this clock, so that a busy machine makes no key older than it is."""
        return patch("textual.message._time", SimpleNamespace(get_time=self))


def pending_call(
    index: int = 1,
    *,
    tool: str = "shell_exec",
    facts: CallFacts | None = None,
    reason: AskReason = AskReason.POLICY,
    why: str = "tool setting: shell_exec asks",
    said: str = "I will look at the state of the repository first.",
    digest: str = "",
) -> PendingCall:
    """A pending call; without facts it is `git status`."""
    facts = facts or shell_facts("git status")
    return PendingCall(
        call=ToolCall(id=CallId(f"{ROUND}.{index}"), name=tool, arguments=facts.arguments),
        facts=facts,
        digest=digest or f"digest-{index}",
        reason=reason,
        why=why,
        role="coder",
        model="local",
        said=said,
    )


def shell_facts(command: str, *, argv: tuple[str, ...] | None = None) -> CallFacts:
    """Return the facts of a command."""
    return CallFacts(
        arguments=json.dumps({"command": command}, ensure_ascii=False),
        cwd="/home/ana/project",
        command=command,
        argv=tuple(command.split()) if argv is None else argv,
        sandbox="bubblewrap",
        sandboxed=True,
        folder="7:11:/home/ana/project",
        definition="d",
    )


def may_ask(tool: str) -> Grant:
    """A grant in which every call of that tool asks."""
    known = BUILT_IN_TOOLS.get(tool, NO_CAPABILITIES)
    return Grant(
        role="coder",
        level=AccessLevel.OPERATOR,
        models=(ModelTarget(name="local"),),
        prompt="",
        tools=(ToolSpec(name=tool, description="", schema="{}", capabilities=known),),
        layers=(Layer(name="tool default", rules=(), default=Verdict.ASK),),
    )


def long_facts(lines: int) -> CallFacts:
    """A script of that many lines."""
    return shell_facts("\n".join(f"echo line {number}" for number in range(1, lines + 1)), argv=())


def code_facts(code: str, *, repairs: tuple[str, ...] = ()) -> CallFacts:
    """Return the facts of code."""
    return CallFacts(
        arguments=json.dumps({"code": code}, ensure_ascii=False),
        cwd="/home/ana/project",
        command=code,
        interpreter=("/usr/bin/python3", "-I", "-u", "-X", "utf8", "-c"),
        sandbox="bubblewrap: workspace writable, no network",
        repairs=repairs,
    )


def edit_facts() -> CallFacts:
    """A small edit."""
    return CallFacts(
        arguments='{"new":"b = 2","old":"b = 1","path":"src/app.py"}',
        cwd="/home/ana/project",
        workspace="/home/ana/project",
        paths=("/home/ana/project/src/app.py",),
        diff="--- src/app.py\n+++ src/app.py\n@@ -1,3 +1,3 @@\n a = 0\n-b = 1\n+b = 2\n c = 3\n",
    )


def fetch_facts() -> CallFacts:
    """A page to fetch."""
    return CallFacts(arguments='{"url":"https://example.org/x"}', hosts=("example.org",), network=True)


@dataclass
class Taken:
    """One answer as it reached the session."""

    call_id: CallId
    digest: str
    decision: Decision


class FakeQueue(MessageQueue):
    """The queued messages of a `FakeSession`."""

    def __init__(self, session: "FakeSession") -> None:
        self._session = session

    async def take(self, *, later: int = 0, only: str | None = None, into: str = "") -> str:
        *rest, last = self._session.now.queued or ("",)
        self._session.change(queued=tuple(rest))
        return last

    async def resume(self) -> None:
        self._session.submitted += self._session.now.queued
        self._session.change(queued=(), queue_held=False)


class FakeSession(Session):
    """Publishes what a test tells it to, and remembers what it was asked."""

    def __init__(self, *, pending: Sequence[PendingCall] = (), status: TurnStatus | None = None) -> None:
        self.queue = FakeQueue(self)
        self.listeners: list[Callable[[Published], None]] = []
        self.submitted: list[str] = []
        self.taken: list[Taken] = []
        self.roles_asked: list[str] = []
        self.pinned: list[str | None] = []
        self.pinned_as_default = True
        self.personas: list[str] = []
        self.cancelled = 0
        self.titles: list[str] = []
        self.retried = 0
        self.closed = False
        self.said = ""
        self.refuse: ChatopsError | None = None
        self.stale = False
        self.answers: dict[CallId, DecisionRow] = {}
        self.recorded: tuple[RecordedCall, ...] = ()
        self.rule_scopes = tuple(RuleScope)
        self.changed: tuple[Change, ...] = ()
        self.now = Snapshot(
            session_id=SESSION,
            title="Release notes",
            workspace="/nonexistent/workspace",
            role="coder",
            roles=("assistant", "coder", "researcher"),
            level=AccessLevel.OPERATOR,
            model="local",
            model_label="Qwen 3 (local)",
            is_demo=False,
            persona="default",
            messages=(),
            status=status,
            detail="",
            advice="",
            noticed=False,
            pending=tuple(pending),
            usage=Usage(input_tokens=12_400, output_tokens=830),
            context_used=8_192,
            context_window=32_768,
            queued=(),
            notices=(),
        )

    def changed_files(self, messages: Sequence[Message]) -> tuple[Change, ...]:
        return self.changed

    def change(self, **changes: object) -> None:
        self.now = replace(self.now, **changes)  # type: ignore[arg-type]

    def publish(self, *happened: Event) -> None:
        for event in happened:
            for listener in list(self.listeners):
                listener(Published(at=0.0, event=event))

    def ask(self, *calls: PendingCall) -> None:
        """The turn stops because these calls wait."""
        self.change(pending=(*self.now.pending, *calls), status=TurnStatus.PAUSED)
        for call in calls:
            proposed = CallProposed(
                id=call.call.id, parent_id=ROUND, tool=call.call.name, arguments=call.call.arguments
            )
            self.publish(proposed, ApprovalRequested(id=call.call.id, parent_id=ROUND, pending=call))
        self.publish(TurnPaused(id=TURN, parent_id=SESSION, pending=self.now.pending))

    def start_turn(self, text: str, *files: FileRef) -> None:
        self.change(status=TurnStatus.RUNNING, messages=(*self.now.messages, _said(text)))
        self.publish(TurnStarted(id=TURN, parent_id=SESSION, text=text, files=files, role="coder", model="local"))
        self.publish(RoundStarted(id=ROUND, parent_id=TURN, model="local"))

    def say(self, text: str) -> None:
        self.said += text
        self.publish(TextDelta(id=f"{ROUND}.thought", parent_id=ROUND, text=text))

    def end_turn(self, result: TurnStatus, *, detail: str = "", advice: str = "") -> None:
        self.change(status=result, detail=detail, advice=advice)
        status = Status.SUCCESS if result is TurnStatus.ANSWERED else Status.ERROR
        end = TurnFinished(
            id=TURN, parent_id=SESSION, status=status, result=result, answer="", detail=detail, advice=advice
        )
        thought = ThoughtFinished(id=f"{ROUND}.thought", parent_id=ROUND, status=status, text=self.said)
        self.publish(thought)
        if result is TurnStatus.FAILED:
            self.publish(Notice(id=f"{TURN}.n1", parent_id=TURN, text=detail, advice=advice, level="error"))
        self.publish(end)

    def decided_elsewhere(self, call_id: CallId, decision: Decision) -> None:
        self.change(pending=tuple(call for call in self.now.pending if call.call.id != call_id))
        self.publish(CallDecided(id=call_id, parent_id=ROUND, decision=decision, by=replace(ANA, via="approvals")))

    @property
    def settings(self) -> SessionSettings:
        return SessionSettings(role=self.now.role, model_pin=next(reversed(self.pinned), None) or "")

    @property
    def session_id(self) -> SessionId:
        return self.now.session_id

    turn: TurnState | None = None

    def capabilities(self, tool: str) -> Capabilities:
        return built_in_capabilities(tool)

    def snapshot(self) -> Snapshot:
        return self.now

    def events(self, run: WorkflowState | None = None) -> Iterator[Event]:
        now = self.snapshot()
        known = {"session_id": now.session_id, "role": now.role, "model": now.model}
        yield from replay(now.messages, self.turn, pending=now.pending, run=run, **known)  # type: ignore[arg-type]
        if self.turn is None and now.messages and now.status in (TurnStatus.CANCELLED, TurnStatus.LIMIT):
            turn = TurnId(turn_of(now.messages[-1].id))
            yield TurnFinished(
                id=turn,
                parent_id=now.session_id,
                status=Status.ERROR,
                result=now.status,
                answer="",
                detail=now.detail,
                advice=now.advice,
                noticed=now.noticed,
            )

    def grant(self) -> Grant:
        return may_ask("shell_exec")

    def subscribe(self, listener: Callable[[Published], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    async def submit(self, text: str, *, draft: Callable[[], ComposerDraft | None] | None = None) -> bool:
        await asyncio.sleep(0)
        if self.refuse:
            raise self.refuse
        self.submitted.append(text)
        return True

    def rule_offer(self, pending: PendingCall) -> RuleOffer:
        grant = may_ask(pending.call.name).remembering(self.rule_scopes)
        return RuleOffer(pending=pending, grant=grant)

    async def argument_problems(self, pending: PendingCall, arguments: str) -> tuple[Problem, ...]:
        return () if "broken" not in arguments else (Problem(path="command", message="is broken"),)

    async def recorded_calls(self, tool: str) -> tuple[RecordedCall, ...]:
        return self.recorded

    async def decide(self, call_id: CallId, *, digest: str, decision: Decision) -> bool:
        await asyncio.sleep(0)
        if self.refuse:
            raise self.refuse
        self.taken.append(Taken(call_id, digest, decision))
        if self.stale or all(call.digest != digest for call in self.now.pending):
            return False
        self.change(pending=tuple(call for call in self.now.pending if call.call.id != call_id))
        self.publish(CallDecided(id=call_id, parent_id=ROUND, decision=decision, by=ANA))
        return True

    async def decision_on(self, call_id: CallId) -> DecisionRow | None:
        return self.answers.get(call_id)

    @property
    def blocked_by(self) -> ChatopsError | None:
        return None

    @property
    def taken_over(self) -> ChatopsError | None:
        return None

    async def switch_role(self, name: str) -> None:
        if name not in self.now.roles:
            raise ChatopsError(f"There is no role {name}.", advice="/role lists them.")
        self.roles_asked.append(name)
        before, self.now = self.now.role, replace(self.now, role=name)
        switch = RoleSwitchMessage(
            id=MessageId("m9"), before=before, after=name, model="local", added=("web_search",), removed=("shell_exec",)
        )
        self.change(messages=(*self.now.messages, switch))
        self.publish(RoleSwitched(id="m9", parent_id=SESSION, switch=switch))

    async def pin_model(self, name: str | None, *, as_default: bool = True) -> bool:
        self.pinned.append(name)
        self.pinned_as_default = as_default
        return as_default and name not in self.pinned[:-1]

    async def set_persona(self, name: str) -> None:
        self.personas.append(name)

    async def cancel(self) -> bool:
        self.cancelled += 1
        return self.now.status is TurnStatus.RUNNING

    async def rename(self, title: str) -> None:
        self.titles.append(title)

    async def retry(self) -> bool:
        self.retried += 1
        return self.now.status is TurnStatus.FAILED

    def prompt_layers(self) -> tuple[PromptLayer, ...]:
        return (
            PromptLayer(name="base", source="built in", text="You are a helpful assistant."),
            PromptLayer(name="role context", source="role coder", text="You are in code-specialist mode."),
        )

    async def aclose(self) -> None:
        self.closed = True


def _said(text: str) -> Message:
    return UserMessage(id=MessageId(f"{TURN}.m1"), text=text)


class FakeSettings(Settings):
    """Settings in memory, which are written at once."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def get(self, key: str) -> str | None:
        return self.values.get(key)

    fresh = get

    def set(self, key: str, value: str) -> None:
        self.values[key] = value


class FakeUser(UserState):
    """The user's state in memory, without a settings file."""

    def __init__(
        self,
        *,
        sent: Sequence[str] = (),
        drafts: Mapping[str, str] = MappingProxyType({}),
        favourites: Sequence[str] = (),
        turn_cost: bool = False,
    ) -> None:
        self.stored = FakeSettings()
        super().__init__(self.stored, workspace=NOWHERE, file=NOWHERE / "settings.yaml")
        for text in sent:
            self.remember(text)
        for session_id, draft in drafts.items():
            self.save_draft(SessionId(session_id), followed=False, text=draft)
        self.favourites, self.shows_turn_cost = favourites, turn_cost
        self.themes: list[str] = []

    def drafts(self, *, followed: bool = False) -> dict[str, str]:
        """What was stored, by session."""
        before = self.draft_setting(SessionId(""), followed=followed)
        return {key.removeprefix(before): text for key, text in self.stored.values.items() if key.startswith(before)}

    async def save_theme(self, name: str) -> None:
        self.themes.append(name)

    def favourite_roles(self) -> Sequence[str]:
        return self.favourites


class FakeSessions(SessionList):
    """The sessions that a test lists."""

    def __init__(self, world: "FakeWorkspace") -> None:
        self.world = world

    async def listed(self) -> Sequence[SessionRow]:
        return (
            SessionRow(id=SESSION, title="Release notes", when="today 10:15", messages=14),
            SessionRow(
                id=SessionId("20261120-091000-a1b2"),
                title="Fix the parser",
                when="yesterday 9:10",
                messages=52,
                pending=2,
                asks=("shell_exec (git push)", "shell_exec (make)"),
            ),
        )

    async def daily_usage(self, *, days: int) -> Sequence[DailyUsage]:
        return (
            DailyUsage(day="2026-11-21", model="qwen3-32b", tokens=13_230, cost=None, unpriced=4),
            DailyUsage(day="2026-11-21", model="[b]gpt[/b]\x1b", tokens=2_100, cost=0.0312, unpriced=0),
            DailyUsage(day="2026-11-19", model="[b]gpt[/b]\x1b", tokens=20, cost=0.0001, unpriced=1),
        )

    async def pending(self) -> Sequence[SessionRow]:
        return tuple(self.world.undecided)

    async def next_pending(self) -> SessionId | None:
        return self.world.waits

    async def child_transcript(self, call: CallId) -> str:
        return f"# The session of {call}"

    async def last_said(self, session_id: SessionId) -> Sequence[str]:
        return [f"You: question of {session_id}"]

    async def rename(self, session_id: SessionId, title: str) -> None:
        self.world.renamed.append((session_id, title))

    async def delete(self, session_id: SessionId) -> None:
        if self.world.refuse:
            raise self.world.refuse
        self.world.deleted.append(session_id)

    async def delete_replaced(self, left: SessionId, *, made: SessionId) -> None:
        self.world.deleted.append(f"{left}, replaced by {made}")

    async def delete_copy_looked_at(self, left: SessionId) -> None:
        pass

    async def other_folder(self, session_id: SessionId) -> str:
        return next((hit.folder for hit in self.world.hits if hit.session_id == session_id), "")

    async def search(self, text: str, *, everywhere: bool = False) -> Sequence[HitRow]:
        return [hit for hit in self.world.hits if text in hit.text and (everywhere or not hit.folder)]

    async def open(self, session_id: SessionId) -> SessionView:
        if session_id not in self.world.others:
            raise ChatopsError(f"There is no session {session_id}.", advice="/sessions lists them.")
        return self.world.others[session_id]

    follow = open

    async def new(self, *, role: str, model: str | None) -> SessionView:
        self.world.begun_in.append(role)
        return self.world.others["new"]

    async def fork(self, session_id: SessionId, *, before: MessageId | None = None) -> SessionView:
        return self.world.others["fork"]


class FakeRuns(Runs):
    """The workflows and runs that a test names."""

    def __init__(self, world: "FakeWorkspace") -> None:
        self.world = world

    async def workflows(self) -> Sequence[WorkflowRow]:
        return tuple(self.world.known)

    async def unfinished(self) -> Sequence[RunRow]:
        return tuple(self.world.left)

    async def new(
        self, workflow: str, *, query: str, beside: SessionView, warn: Callable[[str], None], empty: object = None
    ) -> SessionView:
        if self.world.refuse is not None:
            raise self.world.refuse
        self.world.begun.append((workflow, query))
        return self.world.others["run"]

    def run_of(self, session: SessionView) -> WorkflowRun | None:
        return next((run for run in self.world.led if run.session is session), None)


class FakeTrust(TrustQuestions):
    """One question about files, and one about servers."""

    def __init__(self, world: "FakeWorkspace") -> None:
        self.world = world

    async def current(self) -> TrustQuestion:
        return self.world.brought

    def about_starts(self) -> TrustQuestion | None:
        return self.world.starts

    async def answer(self, question: TrustQuestion, *, trusted: bool) -> Sequence[str]:
        if self.world.refuse is not None:
            raise self.world.refuse
        self.world.trusted.append(trusted)
        return ()

    async def revoke(self) -> bool:
        return bool(self.world.trusted)


_MATRIX_TOOLS = ("file_write", "shell_exec", "[red]server[/red]__do")


class FakeRights(SessionRights):
    """Two rules, and the tools of a role as one line."""

    def __init__(self, world: "FakeWorkspace") -> None:
        self.world = world

    async def tools(self, session: SessionView) -> str:
        return f"tools of {session.snapshot().role}"

    async def permissions(self, session: SessionView) -> str:
        return f"permissions of {session.snapshot().role}"

    async def rules(self, session: SessionView) -> Sequence[RuleItem]:
        return [
            RuleItem(id="3", rule="shell_exec:git status *", about="this folder, as coder (/w)\nnot used yet"),
            RuleItem(id="12", rule="web_fetch:example.org", about="everywhere, as coder\nused once"),
        ]

    async def matrix(self, session: SessionView) -> RightsMatrix:
        edits = Rule(tool="file_write", verdict=Verdict.DENY)
        reader = Layer(name="tools of role researcher", rules=(edits,), default=Verdict.ALLOW)
        coder = replace(may_ask("shell_exec"), tools=tuple(may_ask(tool).tools[0] for tool in _MATRIX_TOOLS))
        return RightsMatrix(
            level="user",
            role="coder",
            tools=_MATRIX_TOOLS,
            grants={
                "coder": coder,
                "researcher": replace(coder.narrowed(reader), role="researcher"),
                "[b]odd[/b]\x1b": ConfigError("There is no model [b]x[/b]."),
            },
            left_out=0,
            remembered=(),
            workspace_read=False,
        )

    async def revoke(self, session: SessionView, *, rule: str) -> str:
        self.world.revoked.append(rule)
        return f"Revoked rule {rule}."


class FakeJobs(ChatJobs):
    """No session is a job."""

    def __init__(self) -> None:
        pass

    async def restart(self, session_id: SessionId) -> str:
        return ""

    async def continues(self, session_id: SessionId) -> bool:
        return False


OTHER = SessionId("20261120-091000-a1b2")


NOW = datetime(2025, 11, 24, 16).astimezone().timestamp()


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedAt(WaitingCall):
    """A call that is looked at at the time `NOW`."""

    @property
    def age(self) -> float:
        return NOW - self.since


def waiting_call(
    pending: PendingCall,
    *,
    session_id: SessionId = OTHER,
    title: str = "Fix the parser",
    folder: str = "/nonexistent/workspace",
    age: float = 600.0,
    changes: ContainedReview | str | None = None,
) -> WaitingCall:
    """A call that waits in another session, for so many seconds."""
    call = replace(pending.call, id=CallId(f"{session_id}.{pending.call.id.partition('.')[2]}"))
    return LookedAt(
        pending=replace(pending, call=call),
        session_id=session_id,
        title=title,
        folder=folder,
        since=NOW - age,
        changes=changes,
    )


class FakeAllPending(AllPending):
    """The calls that a test lists, and what was decided on them."""

    then = "No process has the session open. To continue it: chatops resume X"

    def __init__(self, *calls: WaitingCall) -> None:
        self.calls: tuple[WaitingCall, ...] = calls
        self.taken: list[tuple[WaitingCall, Decision]] = []
        self.refuse: ChatopsError | None = None
        self.watchers: list[Callable[[Sequence[WaitingCall]], None]] = []
        self.lost: Sequence[str] = ()

    def list_(self, *calls: WaitingCall) -> None:
        """List other calls, as if other processes had asked or decided."""
        self.calls = calls
        for watcher in self.watchers:
            watcher(calls)

    async def waiting(self) -> Sequence[WaitingCall]:
        return self.calls

    async def interrupted(self) -> Sequence[str]:
        return self.lost

    def watch(self, changed: Callable[[Sequence[WaitingCall]], None]) -> asyncio.Task[None]:
        self.watchers.append(changed)
        task = asyncio.create_task(asyncio.Event().wait())
        return cast(asyncio.Task[None], task)

    async def decide(self, call: WaitingCall, decision: Decision) -> str:
        if self.refuse:
            raise self.refuse
        now = next((one for one in self.calls if one.pending.call.id == call.pending.call.id), None)
        if now is None or now.pending.digest != call.pending.digest:
            return ""
        self.taken.append((call, decision))
        self.list_(*(one for one in self.calls if one is not now))
        return self.then

    async def decision_on(self, call: WaitingCall) -> DecisionRow | None:
        return None


@dataclass
class FakeWorkspace(Workspace):
    """Everything around a session, from lists in memory."""

    others: dict[str, FakeSession] = field(default_factory=dict)
    revoked: list[str] = field(default_factory=list)
    clipboard_image: str = ""
    """Name under which the image on the clipboard is kept; empty: there is none."""
    looked_at: list[tuple[str, bool]] = field(default_factory=list)
    """Images that the screen wanted to show, by digest, and if it wanted a preview."""
    waits: SessionId | None = None
    undecided: list[SessionRow] = field(default_factory=list)
    known: list[WorkflowRow] = field(default_factory=list)
    left: list[RunRow] = field(default_factory=list)
    led: list[WorkflowRun] = field(default_factory=list)
    begun: list[tuple[str, str]] = field(default_factory=list)
    begun_in: list[str] = field(default_factory=list)
    refuse: ChatopsError | None = None
    starts: TrustQuestion | None = None
    """Question about MCP servers."""
    brought: TrustQuestion = field(
        default_factory=lambda: TrustQuestion(folder="1:1:/home/me/project", path="/home/me/project", listed=())
    )
    trusted: list[bool] = field(default_factory=list)
    renamed: list[tuple[str, str]] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    hits: list[HitRow] = field(default_factory=list)
    folder: Path = NOWHERE
    user: FakeUser = field(default_factory=FakeUser)
    everywhere: FakeAllPending = field(default_factory=FakeAllPending)

    def __post_init__(self) -> None:
        self.sessions, self.runs, self.jobs = FakeSessions(self), FakeRuns(self), FakeJobs()
        self.trust, self.rights = FakeTrust(self), FakeRights(self)
        self.memories = Memories(self.folder, workspace=self.folder)
        self.sandbox = SandboxNote(off=False, text="bubblewrap")

    @property
    def problem(self) -> str:
        return ""

    async def reload(self) -> bool:
        if self.refuse is not None:
            raise self.refuse
        return False

    def all_pending(self) -> FakeAllPending:
        return self.everywhere

    def roles(self) -> Sequence[RoleRow]:
        return (
            RoleRow(
                name="assistant",
                model="Qwen 3 (local)",
                tools=("file_read", "file_list", "file_search"),
                rights=("reads files", "no network"),
            ),
            RoleRow(
                name="coder",
                model="Qwen 3 (local)",
                tools=("file_read", "file_edit", "shell_exec"),
                rights=("reads files", "asks before edits and commands", "no network"),
            ),
            RoleRow(
                name="researcher",
                model="Gemini",
                tools=("web_search", "web_fetch", "file_read"),
                rights=("reads files and searches the web", "asks before web pages"),
            ),
        )

    def role_colours(self) -> Sequence[tuple[str, str]]:
        return [("assistant", ""), ("coder", ""), ("researcher", "")]

    def models(self) -> Sequence[ModelRow]:
        return (ModelRow(name="local", label="Qwen 3 (local)"), ModelRow(name="demo", label="DEMO", note="no AI"))

    def default_model(self) -> str:
        return "local"

    def images_key(self, model: str) -> str:
        return f'"images": true in models.{model} of registry.json' if model == "local" else ""

    async def models_of_servers(self) -> Sequence[ModelRow]:
        return self.models()

    async def model_problem(self, name: str) -> str:
        return ""

    def personas(self) -> Sequence[tuple[str, str]]:
        return (("default", "Clear and friendly."), ("terse", "As short as it can be."))

    def persona(self, session: SessionView) -> str:
        return session.snapshot().persona or "default"

    async def open_file(self, file: FileRef) -> str:
        return f"Opened {file}."

    async def paste_image(self) -> str:
        if not self.clipboard_image:
            raise ChatopsError("There is no image on the clipboard.", advice="Copy one.")
        return self.clipboard_image

    async def picture(self, image: FileRef, *, preview: bool, fine: bool) -> Picture | None:
        self.looked_at.append((image.digest, preview))
        raster = Raster(4, 2, bytes((200, 0, 0, 255)) * 8) if preview else None
        large = Raster(32, 16, bytes((200, 0, 0, 255)) * 512) if fine else None
        return Picture(size=(640, 480), raster=raster, fine=large)


def brought() -> TrustQuestion:
    """Files of a hostile folder, some of them trusted before."""
    notes = b"# Project\nRun make test.\n"
    text = Item(kind=ItemKind.NOTES, path="AGENTS.md", size=len(notes), digest="63df52fea0736c25" * 4, data=notes)
    rules = Item(kind=ItemKind.REGISTRY, path="model_registry.json", size=345, digest="fae0395a3c6458a2" * 4)
    tool = Item(kind=ItemKind.TOOL, path=".chatops/tools/a\x1b[2J\u202eb.py", size=9, digest="cc42155088fca573" * 4)
    link = Item(kind=ItemKind.SERVERS, path=".mcp.json", problem=ReadFault.LINK)
    return TrustQuestion(
        folder="7:1:/home/me/project",
        path="/home/me/project",
        listed=(
            Listed(item=text, state=ItemState.CHANGED),
            Listed(item=rules, state=ItemState.SEEN),
            Listed(item=tool, state=ItemState.NEW),
            Listed(item=link, state=ItemState.UNUSABLE),
        ),
    )


def opener(session: FakeSession, workspace: FakeWorkspace | None = None, **more: object) -> Callable[[], object]:
    """Opener that the app awaits after the first paint."""

    async def opened() -> FirstSession:
        return FirstSession(session=session, workspace=workspace or FakeWorkspace(), **more)  # type: ignore[arg-type]

    return opened
