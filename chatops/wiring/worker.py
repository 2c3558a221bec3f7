"""Worker: takes turns and runs from the queue of a database and drives them, on as many hosts as there are workers.

Theory of operation

A worker looks for hints (`store.queue`) when it is notified, and every HINT_LOOK_S seconds in any case. For each it
checks what the turn needs here: folder, role, model, key. If something is missing, the turn is left to other workers,
and the next sign of life gives the reason. Else the turn gets an application of its own, in the folder of its
workspace, for the user who asked for it: the worker's registries say what that role of the database may do, and it is
no more than the level that the database has for it now. It has no remembered rules. The session is opened and driven as
every session is, until the turn waits for a user or is over. Then it is closed, and its hint is deleted unless it can
go on. If the hint names a workflow, this is a run of that workflow as it is defined here, and its turns.

Ownership is the lease of the session. Two workers may follow one hint: the second finds the session taken. A worker
that cannot renew a lease stops the tools of that turn after STOP_TOOLS_AFTER_S seconds, before others may take it. What
has ended by then is stored once the database answers, unless another worker has taken the session.

Beside its slots a worker has one more, for turns that go on: a decision does not wait for a turn that has just begun.
Right after it has taken such a turn, a worker begins no new one.

A worker that is told to stop takes nothing more and leaves each turn after the step that runs. Others continue it.
"""

import asyncio
import logging
import secrets
import signal
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from chatops.domain.decisions import NO_UID
from chatops.domain.errors import ChatopsError, ConfigError, NotSavedError, SessionHeldError, StoreError
from chatops.domain.ids import SessionId
from chatops.policy.grant import Grant
from chatops.policy.resolve import User
from chatops.runtime.lease import LEASE_S, LOOK_S
from chatops.runtime.session import Session
from chatops.runtime.settings import SessionSettings
from chatops.runtime.workflow import WorkflowRun
from chatops.store.base import IN_QUEUE
from chatops.store.queue import Hint
from chatops.store.store import Store
from chatops.toolkit.threads import in_thread
from chatops.wiring.app import App
from chatops.wiring.checks import at_step, check_to_run
from chatops.wiring.not_started import why_no_answer
from chatops.wiring.stored import Options

log = logging.getLogger(__name__)

HINT_LOOK_S = 5.0
"""Seconds between two looks for hints if nothing is notified."""
SIGN_S = 10.0
"""Seconds between two signs of life, each with a sweep."""
NEW_TURN_DELAY_S = 0.3
"""Seconds that a new turn is held after another one went on: somebody has just decided, and may be watching."""
STORE_RETRY_S = 2.0
"""Seconds from a failure of the store to the next try."""
REFUSED_FOR_S = 60.0
"""Seconds until a turn that lacks something here, or did not get any further, is looked at again."""
STOP_TOOLS_AFTER_S = LEASE_S - 10
"""Seconds after which the tools of a turn are stopped if its lease cannot be renewed."""


class _Refusal(NamedTuple):
    """A turn that cannot be driven here."""

    until: float
    """Time of the next look, by `time.monotonic`."""
    why: str


class _Kind:
    """A kind of turns that a worker takes: those that are new, or those that go on."""

    def __init__(self, *, new: bool, slots: int) -> None:
        self.new = new
        self.slots = slots
        """A turn of this kind is taken while fewer are driven."""
        self.may_take = asyncio.Event()
        """Set when there may be one to take."""


class Worker:
    """A worker for the workspaces `folders`, with their folders here, that drives up to `slots` turns at a time."""

    def __init__(
        self,
        store: Store,
        folders: Mapping[str, Path],
        *,
        slots: int,
        registry: Path | None,
        say: Callable[[str], None],
    ) -> None:
        self._store, self._folders, self._registry = store, folders, registry
        self._say = say
        self._id = secrets.token_hex(8)
        self._driving: dict[SessionId, asyncio.Task[None]] = {}
        self._refused: dict[SessionId, _Refusal] = {}
        self._continued_at = 0.0
        """When a turn that goes on was taken last, as `time.monotonic` counts."""
        self._leaving = asyncio.Event()
        self._new_turns = _Kind(new=True, slots=slots)
        # One slot more: somebody who has just decided does not wait for new turns.
        self._continued_turns = _Kind(new=False, slots=slots + 1)

    async def run(self) -> None:
        """Work until SIGTERM or SIGINT. A second one stops at once what is still driven."""
        loop = asyncio.get_running_loop()
        woken = partial(loop.call_soon_threadsafe, self._wake)
        stop_listening = self._store.listen(woken, *(f"{IN_QUEUE}{name}" for name in self._folders))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._leave)
        take_new = partial(self._take_hints, self._new_turns)
        beside = [asyncio.create_task(self._repeat(work)) for work in (take_new, self._keep_alive)]
        try:
            await self._repeat(partial(self._take_hints, self._continued_turns), says=True)
            if self._driving:
                self._say(f"Leaving {len(self._driving)} turns after the step that runs.")
                await asyncio.gather(*self._driving.values(), return_exceptions=True)
        finally:
            stop_listening()
            for task in beside:
                task.cancel()
            with suppress(StoreError):
                await in_thread(self._store.sign_off, self._id)

    def _leave(self) -> None:
        if self._leaving.is_set():
            for task in self._driving.values():
                task.cancel()
        self._leaving.set()
        self._wake()

    def _wake(self) -> None:
        for kind in (self._new_turns, self._continued_turns):
            kind.may_take.set()

    async def _repeat(self, work: Callable[[], Coroutine[Any, Any, None]], *, says: bool = False) -> None:
        """Do `work` until this worker leaves, and again after a failure of the store. `says`: report that failure."""
        failed = False
        while not self._leaving.is_set():
            try:
                await work()
                if failed:
                    self._say("The database answers again.")
                failed = False
            except StoreError as error:
                log.warning("%s", error)
                if says and not failed:
                    self._say(f"{error} {error.advice}".strip())
                    failed = True
                await asyncio.sleep(STORE_RETRY_S)

    async def _keep_alive(self) -> None:
        await self._sign_life()
        await in_thread(self._store.sweep)
        await asyncio.sleep(SIGN_S)

    async def _sign_life(self) -> None:
        now = time.monotonic()
        self._refused = {id_: refusal for id_, refusal in self._refused.items() if refusal.until > now}
        refused, workspaces = {id_: refusal.why for id_, refusal in self._refused.items()}, sorted(self._folders)
        sign = partial(self._store.sign_of_life, slots=self._new_turns.slots, workspaces=workspaces, refused=refused)
        await in_thread(sign, self._id)

    # Taking

    async def _take_hints(self, kind: _Kind) -> None:
        """Take turns of a kind while there are free slots. Then wait until there may be more."""
        kind.may_take.clear()
        looked_at, refused = set[SessionId](), dict(self._refused)
        while self._has_room(kind):
            but = {*self._driving, *self._refused, *looked_at}
            hint = await in_thread(partial(self._store.next_hint, self._folders, but=but, new=kind.new))
            if hint is None:
                break
            looked_at.add(hint.session_id)
            if kind.new:
                await asyncio.sleep(self._continued_at + NEW_TURN_DELAY_S - time.monotonic())
            else:
                self._continued_at = time.monotonic()
            await self._drive_if_possible(hint, kind)
        if self._refused != refused:
            await self._sign_life()
        if not self._leaving.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(kind.may_take.wait(), HINT_LOOK_S)

    def _has_room(self, kind: _Kind) -> bool:
        return not self._leaving.is_set() and len(self._driving) < kind.slots

    def _refuse(self, hint: Hint, why: str) -> None:
        self._refused[hint.session_id] = _Refusal(time.monotonic() + REFUSED_FOR_S, why)

    async def _drive_if_possible(self, hint: Hint, kind: _Kind) -> None:
        """Drive the turn of a hint, unless something that it needs is missing here."""
        async with AsyncExitStack() as closing:
            try:
                opened = await in_thread(self._open_app, hint)
                closing.push_async_callback(opened.aclose)
                why = await in_thread(self._why_not_here, opened, hint)
                if hint.workflow and not why:
                    role = await in_thread(self._role_of, opened, hint)
                    (await check_to_run(opened, opened.workflows().get(hint.workflow), role=role)).or_raise()
                if not why and self._has_room(kind):
                    closing.pop_all()  # the task closes it
                    task = asyncio.create_task(self._drive(opened, hint), name=f"drive {hint.session_id}")
                    self._driving[hint.session_id] = task
            except StoreError:
                raise
            except ChatopsError as error:
                why = str(error).rstrip(".")
        if why:
            self._refuse(hint, why)

    def _open_app(self, hint: Hint) -> App:
        """Return the application of a turn. Raises ConfigError."""
        level = self._store.level_of(hint.requester)
        if level is None:
            raise ConfigError(f"{hint.requester} has no level in the database")
        folder = self._folders[hint.workspace]
        chosen = Options(registry=self._registry, workspace=folder, access=level, via="headless")
        opened = App(chosen, store=self._store, user=User(uid=NO_UID, login=hint.requester))
        if opened.loaded.broken is not None:
            raise opened.loaded.broken
        return opened

    def _why_not_here(self, opened: App, hint: Hint) -> str:
        """Return why a turn must not go on here, as a clause; empty if it may. Raises ChatopsError."""
        if hint.active_turn is not None:
            return _why_no_model(opened, self._store.load_turn(hint.active_turn).grant)
        info, role = self._store.session(hint.session_id), self._role_of(opened, hint)
        if role not in opened.rights.roles():
            return f"there is no role {role}"
        wanted = [SessionSettings(role, model_pin=info.model_pin, persona=info.persona)]
        if hint.workflow or info.unfinished_run is not None:
            spec = opened.workflows().get(hint.workflow).spec if hint.workflow else self._store.load_run(info.id).spec
            steps = [at_step(spec, step, role=role) for step in spec.steps]
            wanted = [replace(step, model_pin=step.model_pin or info.model_pin) for step in steps]
        grants = map(opened.rights.grant, wanted)
        return next((why for grant in grants if (why := _why_no_model(opened, grant))), "")

    def _role_of(self, opened: App, hint: Hint) -> str:
        return self._store.session(hint.session_id).role or opened.loaded.registry.default_role

    # Driving

    async def _drive(self, opened: App, hint: Hint) -> None:
        """Drive a turn, then close its application and let its hint count again."""
        wait_s: float | None = REFUSED_FOR_S
        try:
            wait_s = await self._drive_turn(opened, hint)
        finally:
            with suppress(StoreError):
                await opened.aclose()
                if wait_s is not None:
                    await in_thread(partial(self._store.unhint, hint.session_id, wait_s=wait_s))
            del self._driving[hint.session_id]
            self._wake()

    async def _drive_turn(self, opened: App, hint: Hint) -> float | None:
        """Drive a turn until it waits for a user or is over, and release its session.

        Return the seconds until its hint counts again; None if it is left to another process, which has the session.
        """
        try:
            driven = await self._open_turn(opened, hint)
            try:
                has_moved = await self._continue_turn(driven)
            finally:
                await driven.aclose()
            if not has_moved:
                return REFUSED_FOR_S
            return 0.0 if _session_of(driven).taken_over is None else None
        except SessionHeldError:
            return None
        except NotSavedError as error:
            log.warning("session %s goes on later: %s", hint.session_id, error)
            return 0.0
        except ChatopsError as error:
            log.warning("session %s: %s", hint.session_id, error)
            self._refuse(hint, str(error).rstrip("."))
        except Exception:
            log.exception("session %s", hint.session_id)
            self._refuse(hint, "it failed here, see the worker's log")
        return REFUSED_FOR_S

    async def _open_turn(self, opened: App, hint: Hint) -> Session | WorkflowRun:
        """Open what a hint is at. A run that is asked for is stored with its first step."""
        info = await in_thread(self._store.session, hint.session_id)
        if info.unfinished_run is not None:
            return await opened.open_run(info.id, attended=False)
        queued = await in_thread(self._store.queued_messages, info.id) if hint.active_turn is None else ()
        session = await opened.open_session(info.id, attended=False, attaches="".join(queued[:1]))
        if not (hint.workflow and session.queue.messages):
            return session
        spec, query = opened.workflows().get(hint.workflow).spec, session.queue.messages[0]
        role, model = session.settings.role, info.model_pin
        return await opened.new_run(spec, query, attended=False, role=role, model=model, empty=session)

    async def _continue_turn(self, driven: Session | WorkflowRun) -> bool:
        """Continue a session or its run. Return False if it is where it was before."""
        session, run = _session_of(driven), driven if isinstance(driven, WorkflowRun) else None
        before = session.state, driven.state
        if run is not None or session.unfinished:
            await self._under_lease(session, driven.resume())
        elif not await session.queue.send_for_worker():
            return False
        await self._under_lease(session, self._settle(driven))
        if run is not None and run.blocked_by is not None and session.taken_over is None:
            raise run.blocked_by
        return (session.state, driven.state) != before

    async def _settle(self, driven: Session | WorkflowRun) -> None:
        """Wait until the turn waits for a user or is over, and all of it is stored; or until it can be left."""
        session, leaving = _session_of(driven), asyncio.ensure_future(self._leaving.wait())
        try:
            while not self._leaving.is_set():
                settled = asyncio.ensure_future(driven.settle())
                await asyncio.wait({settled, leaving}, return_when=asyncio.FIRST_COMPLETED)
                settled.cancel()
                if settled.done() and not isinstance(session.blocked_by, NotSavedError):
                    return
                await asyncio.sleep(LOOK_S)
            await session.quiesce()
        finally:
            leaving.cancel()

    async def _under_lease(self, session: Session, work: Coroutine[Any, Any, None]) -> None:
        """Do `work` as long as the lease is renewed. Otherwise stop it, and wait until what has ended is stored."""
        task = asyncio.create_task(work)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=LOOK_S)
                if session.lease_age_s > STOP_TOOLS_AFTER_S:
                    log.warning("session %s stops: its lease cannot be renewed", session.session_id)
                    await session.stop_working()
                    while isinstance(session.blocked_by, NotSavedError) and session.lease:  # noqa: ASYNC110
                        await asyncio.sleep(LOOK_S)
                    return
            task.result()
        finally:
            task.cancel()


def _session_of(driven: Session | WorkflowRun) -> Session:
    return driven.session if isinstance(driven, WorkflowRun) else driven


def _why_no_model(opened: App, grant: Grant) -> str:
    """Return why no model of a grant can answer here, as a clause; empty if one can."""
    models = [spec for target in grant.models if (spec := opened.rights.model(target.name)) is not None]
    if grant.models and not models:
        return f"there is no model {grant.models[0].name}"
    missing = why_no_answer(models)
    return missing.sentence if missing is not None else ""
