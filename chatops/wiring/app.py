"""The application behind every command: registry, store, tools and models, each created on first use."""

import os
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

from chatops.config.paths import Paths, find_paths, sharing_notices
from chatops.config.prompt_files import Memories
from chatops.config.registry import Loaded
from chatops.config.trust import ServerTrust
from chatops.config.workflow_files import Workflows, workspace_workflow
from chatops.domain.decisions import Principal, RuleScope
from chatops.domain.errors import ChatopsError
from chatops.domain.ids import SessionId
from chatops.domain.sanitize import show_path
from chatops.domain.tools import ToolSpec
from chatops.policy.grant import Grant
from chatops.policy.registry import Registries, RegistryWarning, RoleSpec
from chatops.policy.registry_checks import registry_warnings, warnings_in_use
from chatops.policy.resolve import User
from chatops.policy.workflow import WorkflowSpec
from chatops.runtime.services import Services, WorkerThread, is_workspace_gone, workspace_gone_text
from chatops.runtime.session import Session, open_session
from chatops.runtime.settings import SessionSettings, StepRights, stored_settings
from chatops.runtime.workflow import WorkflowRun, new_run, open_run
from chatops.sandbox.mount_points import MOUNTED, remove_mount_point
from chatops.sandbox.process import harden_process
from chatops.store import audit
from chatops.store.base import RuleRow, SessionInfo
from chatops.store.process_identity import this_process
from chatops.store.session_files import SessionFiles
from chatops.store.store import Store
from chatops.store.tool_outputs import Outputs
from chatops.toolkit.base import Tool
from chatops.toolkit.threads import in_thread
from chatops.wiring.call_limits import CallLimits
from chatops.wiring.configuration import ConfigurationFiles
from chatops.wiring.open_sessions import OpenSessions
from chatops.wiring.registry_models import DEFAULT_MODEL_KEY
from chatops.wiring.rights import Limits, RegistryRights, current_user
from chatops.wiring.servers import McpServers
from chatops.wiring.stored import (
    Options,
    Settings,
    make_store,
    principal_of,
    refuse_queued,
    start_logging,
    workspace_of,
)
from chatops.wiring.toolbox import Toolbox

if TYPE_CHECKING:
    from chatops.contained.turns import ContainedTurns
    from chatops.models.chat import OpenAIChat
    from chatops.models.client import RegistryClient
    from chatops.policy.registry import ModelSpec
    from chatops.runtime.session_follower import SessionFollower


class App:
    """The application. Created once per process; close it with `aclose`.

    Everything heavy is imported where it is first used.
    """

    def __init__(
        self,
        options: Options,
        *,
        tools: Sequence[Tool] = (),
        roles: Sequence[RoleSpec] = (),
        store: Store | None = None,
        paths: Paths | None = None,
        user: User | None = None,
    ) -> None:
        """Read the registry, and nothing else yet.

        `tools` are a program's own, beside the built-in ones. `roles` exist where the registry has none of their name.
        `store` is one that is open already; its owner closes it. `paths` are other folders than the user's own.
        `user` is who asked for the turns, if that is not the user of this process.
        """
        self.options = options
        self._store = store
        self._tools = tuple(tools)
        self.paths = paths or find_paths(os.environ)
        self.paths.prepare()
        start_logging(self.paths.log)
        self.workspace = workspace_of(options.workspace)
        self.user, self._for_worker = user or current_user(), user is not None
        self.open_sessions = OpenSessions()
        self.configuration = ConfigurationFiles(
            self.paths,
            workspace=self.workspace,
            registry=options.registry,
            environ=os.environ,
            by_name=options.via == "tui",
            roles=roles,
            access=options.access,
            on_change=self.open_sessions.registry_changed,
        )
        self.trust, self.own_tools_trust = self.configuration.trust, self.configuration.own_tools
        self.memories = Memories(self.paths.memory, workspace=self.workspace)
        self.workspace_error = ""
        """Message that the workspace is gone, as of the last look; empty if it is there."""
        self._worker: WorkerThread | None = None
        self._registry_warnings: tuple[tuple[Registries, Sequence[ToolSpec]], tuple[RegistryWarning, ...]] | None = None
        """The warnings about registries and tools, kept with these: a UI asks for the warnings whenever it draws."""
        self.start_job: Callable[[SessionId], str] = lambda session_id: ""
        """Starts a session again that is a job, see `wiring.jobs`. A UI that decides sets it."""
        self._has_cleaned = False
        """True once the copies left by earlier contained turns were checked."""
        self.rights = RegistryRights(
            self.configuration.now,
            user=self.user,
            workspace=self.workspace,
            memories=self.memories,
            tools=lambda: self.catalog,
            settings=lambda: self.settings,
            notices=self.notices,
            limits=Limits(
                max_rounds=options.max_rounds,
                budget=options.budget,
                approvals=options.approvals,
                sandbox=options.sandbox,
                summary=options.summary or not self.loaded.registry.respond_with_final,
            ),
        )

    @property
    def loaded(self) -> Loaded:
        """The registries in force."""
        return self.configuration.loaded

    def look_at_workspace(self) -> None:
        """Notify every open session if the workspace is gone, or there again."""
        gone = workspace_gone_text(self.workspace) if is_workspace_gone(self.workspace) else ""
        if gone != self.workspace_error:
            self.workspace_error = gone
            self.open_sessions.notify(gone or f"The workspace {show_path(str(self.workspace))} exists again.")

    def reload_registry(self) -> None:
        """Put the registry in force as it is now, and read skills and the user's tools again. Raises ConfigError."""
        # connect may have written it in another process, together with the registry.
        self.configuration.reload(also=lambda: self.settings.fresh(DEFAULT_MODEL_KEY))

    @cached_property
    def store(self) -> Store:
        """The user's store. Raises StoreError."""
        store = self._store or make_store(
            self.options.store, self.paths, self.options.storage, registry=self.options.registry
        )
        store.surface = self.options.via
        return store

    @cached_property
    def outputs(self) -> Outputs:
        """Output of running tools so far."""
        return Outputs(self.paths.running)

    @cached_property
    def files(self) -> SessionFiles:
        """The files of sessions, beside the store or in it."""
        return self.store.files

    @cached_property
    def limits(self) -> CallLimits:
        """The limits of calls."""
        return CallLimits(
            self.configuration.now,
            workspace=self.workspace,
            command_line=self.options.sandbox,
            outputs=self.outputs,
            files=lambda: self.files,
            kept=self.paths.data / "kept",
        )

    @cached_property
    def contained(self) -> "ContainedTurns":
        """The copies of contained turns."""
        from chatops.contained.turns import ContainedTurns  # few turns are contained

        return ContainedTurns(self.paths.data)

    @cached_property
    def settings(self) -> Settings:
        """Small values of the application: last roles, default model, history, drafts, quirks of endpoints."""
        return Settings(self.store, self._worker_thread())

    @cached_property
    def catalog(self) -> Toolbox:
        """The tools that exist here."""
        # Before any tool can run: its processes must not be able to read keys from this process.
        harden_process()
        return Toolbox(
            self.configuration.now,
            paths=self.paths,
            environ=os.environ,
            memories=self.memories,
            trust=self.configuration.own_tools,
            servers=self.servers,
            program=self._tools,
        )

    @cached_property
    def servers(self) -> McpServers:
        """The MCP servers that the registries in force name."""
        return McpServers(
            self.configuration.now,
            workspace=self.workspace,
            data=self.paths.data,
            offers=self.rights.offers,
            permits=lambda start: self.server_trust.permits(start),
            attended=self.options.via == "tui",
            on_change=self.open_sessions.registry_changed,
            notify=self.open_sessions.notify,
        )

    @cached_property
    def server_trust(self) -> ServerTrust:
        """The user's yes to starting servers with little or no sandbox."""
        return ServerTrust(self.workspace, folder=self.paths.trust / "servers")

    @cached_property
    def models(self) -> "RegistryClient":
        """The client for all models of the registry."""
        from chatops.models.client import RegistryClient

        return RegistryClient(
            self.rights.model, remembered=self.settings, demo=_demo_model, read_file=self.files.read, cli=self._cli
        )

    def _cli(self, spec: "ModelSpec") -> "OpenAIChat":
        from chatops.models.cli import cli_chat  # slow to import
        from chatops.runtime.cli_program import run_cli

        run_program = partial(run_cli, limits=self.limits.sandbox, protected=self.limits.protected_paths())
        return cli_chat(spec, run_program=run_program)

    @cached_property
    def principal(self) -> Principal:
        """Identity that decisions of this process are recorded under."""
        options = self.options
        return principal_of(self.user, via=options.via, client=options.client, member=self.store.role)

    def notices(self, grant: Grant | None = None) -> tuple[str, ...]:
        """Return what the user has to know about the configuration, and about role and models of `grant`."""
        trust = (*self.configuration.trust_notices(asks=self.options.via == "tui"), *self.catalog.notices)
        loaded, concerns = (warnings_in_use(found, grant=grant) for found in (self.loaded.notices, self.concerns()))
        return (*self.paths.notices, *sharing_notices(self.workspace), *loaded, *trust, *concerns, *self.store.notices)

    def concerns(self) -> tuple[RegistryWarning, ...]:
        """Return configured names that have no effect here: tools, personas and models that do not exist."""
        now = self.configuration.now()
        registries, specs = now.registries, self.catalog.specs_under(now)
        about, warnings = self._registry_warnings or (None, ())
        if about != (registries, specs):
            warnings = registry_warnings(
                registries,
                specs=specs,
                absent=self.catalog.unavailable,
                personas=[name for name, _ in self.rights.personas()],
            )
            self._registry_warnings = ((registries, specs), warnings)
        others = (*self.rights.useless_choices(), *now.personas.warnings, *now.skills.warnings)
        return (*warnings, *map(RegistryWarning, others))

    def workflows(self) -> Workflows:
        """Find the workflows that can be run here, including the packaged ones."""
        from_workspace = [workspace_workflow(item, self.workspace) for item in self.trust.in_force.workflows]
        return self.loaded.workflows(from_workspace=from_workspace)

    def rules(self, session_id: SessionId | None) -> tuple[RuleRow, ...]:
        """Return this user's remembered rules that could answer in a session; None: in a new one."""
        rows = self.store.rules(session_id=session_id, uid=self.principal.uid)
        return tuple(row for row in rows if session_id is not None or row.rule.scope is not RuleScope.SESSION)

    def grant_for(self, role: str, session: SessionInfo | None = None) -> Grant:
        """Return what `role` may do now. Raises ConfigError for an unknown role, with the known ones."""
        pin = self.options.model or (session.model_pin if session is not None else "")
        persona = session.persona if session is not None else ""
        return self.rights.grant(SessionSettings(role, model_pin=pin, persona=persona))

    def default_role(self) -> str:
        """Return the last role used in this workspace, else the registry's default."""
        last = self.settings.get(f"role:{self.workspace}")
        return last if last in self.rights.roles() else self.loaded.registry.default_role

    async def open_session(
        self, session_id: SessionId | None, *, attended: bool, model: str | None = None, attaches: str = ""
    ) -> Session:
        """Open a session: a stored one (an id or unique prefix), or a new one for None.

        `attended`: a user is at the screen, so the last used role is the default, and the files that messages name are
        attached. Without a user only those in `attaches` are. `model` is pinned instead of the command line's.
        """
        default = self.default_role() if attended else self.loaded.registry.default_role
        worker = self._worker_thread()
        stored = await worker(self.store.session, session_id) if session_id is not None else None
        if stored is not None and not self._for_worker:
            # A child's session belongs to the folder of its worker.
            refuse_queued(stored if stored.parent is None else await worker(self.store.session, stored.parent))
        if not attended:
            # The first turn is offered only the tools that are known when it starts.
            await self.servers.connect_for(SessionSettings(self.options.role or (stored.role if stored else default)))
        if attended and self.options.role in self.rights.roles():
            self.settings.set(f"role:{self.workspace}", str(self.options.role))
        session = await open_session(
            self._services(attended=attended, attaches=attaches),
            session_id,
            role=self.options.role or "",
            default_role=default,
            model_pin=(self.options.model if model is None else model) or "",
        )
        self.open_sessions.add(session)
        return session

    async def open_child(self, session_id: SessionId) -> Session:
        """Open the session of a delegated call, as it is stored. Raises SessionHeldError, UnreadableError."""
        worker = self._worker_thread()
        info = await worker(self.store.session, session_id)
        # Only servers with a tool that the child may use.
        await self.servers.connect_for(await worker(stored_settings, self.store, info, role=info.role))
        services = self._services(attended=False)
        session = await open_session(services, session_id, default_role=self.loaded.registry.default_role)
        self.open_sessions.add(session)
        return session

    async def follow_session(self, session_id: SessionId) -> "SessionFollower":
        """Follow a stored session that another process owns. Raises NoSuchSessionError, UnreadableError."""
        from chatops.runtime.session_follower import follow_session  # needed only if two windows meet

        reader = await follow_session(self._services(attended=True), session_id)
        self.open_sessions.add(reader)
        return reader

    async def new_run(
        self,
        workflow: WorkflowSpec,
        query: str,
        *,
        attended: bool,
        role: str = "",
        model: str = "",
        empty: Session | None = None,
    ) -> WorkflowRun:
        """Create a run of a checked workflow in an `empty` session, or a new one.

        `role` and `model` default to those of the command line. Built-in tools that lack something here are left out.

        Raises ConfigError, StoreError, and ChatopsError if the demo would answer and cannot play the workflow.
        """
        default = self.default_role() if attended else self.loaded.registry.default_role
        role, model = role or self.options.role or default, model or self.options.model or ""
        if not attended:
            await self.servers.connect_for(SessionSettings(role))
        workflow = workflow.without(self.catalog.absent)
        self._check_demo(workflow, query, role=role, model=model)
        services = self._services(attended=attended)
        run = await new_run(services, workflow, query=query, role=role, model=model, empty=empty)
        self.open_sessions.add_run(run)
        return run

    async def open_run(self, session_id: SessionId, *, attended: bool) -> WorkflowRun:
        """Open a stored run, by id or unique prefix. Raises NoSuchSessionError if the session is not a run."""
        default = self.loaded.registry.default_role
        if not self._for_worker:
            refuse_queued(await self._worker_thread()(self.store.session, session_id))
        run = await open_run(self._services(attended=attended), session_id, default_role=default)
        self.open_sessions.add_run(run)
        return run

    def prepare(self) -> None:
        """Create what every session needs, so that nothing is left to load at the first message."""
        _ = (self.catalog, self.configuration.now())
        self.settings.get(DEFAULT_MODEL_KEY)

    async def aclose(self) -> None:
        """Close all sessions, the connections to models, and the store."""
        await self.open_sessions.aclose()
        if "servers" in self.__dict__:
            await self.servers.aclose()
        if "models" in self.__dict__:
            await self.models.aclose()
        if self._worker is not None:
            self._worker.close()
        if "store" in self.__dict__ and self._store is None:
            self.store.close()

    def _worker_thread(self) -> WorkerThread:
        if self._worker is None:
            self._worker = WorkerThread()
        return self._worker

    def _check_demo(self, workflow: WorkflowSpec, query: str, *, role: str, model: str) -> None:
        """Raise ChatopsError for a workflow that the demo cannot play: each attempt would fail in the same way."""
        played = []
        for step in workflow.steps:
            place = StepRights(workflow=workflow, step=step)
            settings = SessionSettings(step.role or role, model_pin=step.model or model, step=place)
            if self.rights.is_demo(self.rights.grant(settings).models[0].name):
                played.append(step.name)
        if not played:
            return
        from chatops.demo.scenes import cannot_play  # needed only if the demo answers

        if reason := cannot_play(workflow.name, played, query):
            raise ChatopsError(f"(demo) {reason}", advice="Nothing was run.")

    def _clean_contained(self) -> None:
        """Finish applications that a killed process left, and remove copies that no turn needs."""

        def in_use() -> frozenset[str]:
            """Return the names of the copies that unfinished turns use. Raises StoreError."""
            turns = map(self.store.load_turn, self.store.unfinished_turns())
            return frozenset(turn.containment.name for turn in turns if turn.containment is not None)

        self.contained.finish_interrupted(self.workspace)
        # A store in memory does not know which copies the turns of the stored sessions use.
        if not self.store.unsaved:
            self.contained.sweep(in_use)

    def _services(self, *, attended: bool, attaches: str = "") -> Services:
        # A sandbox of a killed process leaves its mount points.
        for name in MOUNTED:
            remove_mount_point(self.workspace / name)
        if any((self.paths.data / name).is_dir() for name in ("contained", "kept")) and not self._has_cleaned:
            self._has_cleaned = True
            # The worker thread also commits, so this has ended before a call is started.
            self._worker_thread().later(self._clean_contained)
        return Services(
            store=self.store,
            worker=self._worker_thread(),
            models=self.models,
            tools=self.catalog,
            contexts=self.limits.context,
            rights=self.rights,
            by=self.principal,
            holder=this_process(),
            outputs=self.outputs,
            workspace=self.workspace,
            attach=lambda session_id, text: self.limits.attached(session_id, text if attended else attaches),
            read_files=self.limits.attached,
            open_child=self.open_child,
            contained=lambda: self.contained,
            servers=self.servers,
            start_job=lambda session_id: self.start_job(session_id),
            send_head=self._send_head,
            attended=attended,
        )

    async def _send_head(self, session_id: SessionId) -> None:
        if (sinks := self.rights.sinks()) and (head := await self._worker_thread()(self.store.audit_head, session_id)):
            for kind in sinks:
                await in_thread(audit.send_head, kind, head)


def _demo_model(spec: "ModelSpec") -> "OpenAIChat":
    from chatops.demo.model import demo_chat  # slow to import

    return demo_chat(spec)
