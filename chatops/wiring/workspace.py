"""The workspace as a UI uses it: a facade of everything besides the open session.

Methods that may touch the disk or the network are coroutines. All of them raise `ChatopsError` with a message for the
user, and nothing else on purpose.

A kept file is opened only if it is of a type that the system's program for it does not execute: images, PDF and plain
text. The file's own name is not used: what is opened ends in the name of the type that its bytes show. The program is
not looked up on the PATH and gets no keys.
"""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from threading import Thread
from typing import TYPE_CHECKING

from chatops.config.paths import show_folder
from chatops.config.prompt_files import Skills
from chatops.config.registry_read import ALWAYS_THERE
from chatops.config.trust import TrustAnswer, TrustQuestion
from chatops.config.workspace_files import ItemKind
from chatops.domain.errors import ChatopsError, ConfigError
from chatops.domain.files import FileRef
from chatops.domain.sandbox import SandboxNote
from chatops.models.memory import memory_of
from chatops.policy.registry import ModelSpec
from chatops.policy.registry_checks import model_problem
from chatops.policy.summary import rights_in_words
from chatops.runtime.view import SessionView
from chatops.sandbox.process import clean_environment
from chatops.store.session_files import SessionFiles, can_be_opened
from chatops.toolkit.counting import count_work
from chatops.tools.clipboard import DISPLAY, image_on_clipboard
from chatops.wiring.app import App
from chatops.wiring.explain import SessionRights
from chatops.wiring.jobs import ChatJobs
from chatops.wiring.registry_models import endpoint_of
from chatops.wiring.rows import ModelRow, RoleRow, unknown_name
from chatops.wiring.servers import LOGIN_TEXT, status_lines
from chatops.wiring.sessions import Runs, SessionList
from chatops.wiring.upkeep import Upkeep
from chatops.wiring.user_state import UserState

if TYPE_CHECKING:
    from chatops.tools.picture import Picture
    from chatops.wiring.all_pending import AllPending
    from chatops.wiring.model_reach import ModelReach

_PROGRAM_PATH = "/usr/local/bin:/usr/bin:/bin"
_DESKTOP_VARIABLES = (
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_DATA_DIRS",
    "XDG_CONFIG_DIRS",
    "DESKTOP_SESSION",
    "KDE_FULL_SESSION",
)
"""Environment variables that programs of a desktop need, besides `DISPLAY`."""


class TrustQuestions:
    """The questions about files of the workspace, the user's own tools, and MCP servers that wait for a start."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def current(self) -> TrustQuestion:
        """Return what there is to ask about now, read again."""
        starts = self._app.server_trust.question
        tools = await asyncio.to_thread(self._app.own_tools_trust.reread)
        folder = await asyncio.to_thread(self._app.trust.reread)
        found = next((question for question in (starts, tools, folder) if question.is_open), folder)
        # Without an open question, one that was declined can be answered otherwise.
        return starts if starts.is_answerable and not found.is_answerable else found

    def about_files(self) -> TrustQuestion | None:
        """Return the question about files, as they were read last; None if there is none."""
        questions = (trust.question for trust in (self._app.own_tools_trust, self._app.trust))
        return next((question for question in questions if question.is_open), None)

    def about_starts(self) -> TrustQuestion | None:
        """Return the question about MCP servers that wait for the user's yes to start; None if none does."""
        question = self._app.server_trust.question
        return question if question.is_open else None

    async def answer(self, question: TrustQuestion, *, trusted: bool) -> Sequence[str]:
        """Trust exactly what was asked about, or ignore it until it changes. Return a sentence for each change since.

        Raises ChatopsError if the answer cannot be stored or the folder was replaced.
        """
        tools = self._app.own_tools_trust
        trust = tools if question.path == tools.question.path else self._app.trust
        if question.kind is ItemKind.SERVER_START:
            trust = self._app.server_trust
        answer = TrustAnswer.TRUSTED if trusted else TrustAnswer.DECLINED
        await asyncio.to_thread(self._app.store.log_trust, question.path, answer, [row.item for row in question.usable])
        changed = await asyncio.to_thread(trust.trust if trusted else trust.decline, question)
        for listed in question.listed if trusted and trust is self._app.server_trust else ():
            self._app.servers.reconnect(listed.item.path)
        self._app.open_sessions.registry_changed()
        return changed

    async def revoke(self) -> bool:
        """Forget what the user trusts in this workspace. Return False if nothing was trusted."""
        files = await asyncio.to_thread(self._app.trust.revoke)
        servers = await asyncio.to_thread(self._app.server_trust.revoke)
        self._app.open_sessions.registry_changed()
        if files or servers:
            folder = str(self._app.workspace)
            await asyncio.to_thread(self._app.store.log_trust, folder, TrustAnswer.REVOKED)
        return files or servers


class Workspace:
    """The workspace for this user: its sessions and runs, roles, models, trust, and what may be done in a session."""

    def __init__(self, app: App, *, sandbox: SandboxNote | None = None) -> None:
        """Create the services. `sandbox` says how commands are confined; None: find out."""
        self._app = app
        self.user = UserState(app.settings, workspace=app.workspace, file=app.paths.settings)
        self.runs = Runs(app)
        self.sessions = SessionList(app, runs=self.runs, user=self.user)
        self.jobs = ChatJobs(app)
        self.trust = TrustQuestions(app)
        self.rights = SessionRights(app)
        self.memories = app.memories
        """The memories of the user and of this workspace."""
        self.skills_folder = str(app.paths.skills)
        """The folder of the user's own skills."""
        self.sandbox = app.limits.sandbox_note() if sandbox is None else sandbox
        """How commands are sandboxed, for the status line."""
        self.upkeep = Upkeep(app)
        """Tasks beside the sessions, once they are started."""

    @property
    def problem(self) -> str:
        """The reason why no tool can work here now; empty if all is well."""
        return self._app.workspace_error

    async def aclose(self) -> None:
        """Close all sessions and the application behind them."""
        await self._app.aclose()

    async def reload(self) -> bool:
        """Apply registry, skills and the user's tools as they are. Return True if `trust` has a file to ask about.

        Raises ConfigError if the registry is broken.
        """
        await asyncio.to_thread(self._app.reload_registry)
        return self.trust.about_files() is not None

    # Roles, models, personas, skills

    def roles(self) -> Sequence[RoleRow]:
        """Return the roles of this user here, in registry order."""
        return [self._role_row(name) for name in self._app.rights.roles()]

    def role_colours(self) -> Sequence[tuple[str, str]]:
        """Return the names of all roles with the colours that registries give them: a name, ``#rrggbb`` or nothing."""
        return self._app.rights.role_colours()

    def models(self) -> Sequence[ModelRow]:
        """Return the configured models."""
        return [self._model_row(spec) for spec in self._app.rights.models()]

    def default_model(self) -> str:
        """Return the model that the user chose for all sessions, else the demo."""
        return self._app.rights.default_model()

    async def models_of_servers(self) -> Sequence[ModelRow]:
        """Ask the servers. Return the configured models, with what is missing now, and the servers' other models."""
        found = await asyncio.gather(*(self._ask_server(spec) for spec in self._app.rights.models()))
        rows = [replace(self._model_row(asked.spec), missing=asked.missing) for asked in found]
        taken = {(asked.spec.api_url, asked.spec.model_name) for asked in found}
        for asked in found:
            others = [name for name in asked.available if (asked.spec.api_url, name) not in taken]
            taken |= {(asked.spec.api_url, name) for name in others}
            rows += [self._model_row(asked.spec.sibling(name)) for name in others]
        return rows

    def _model_row(self, spec: ModelSpec) -> ModelRow:
        missing = f"It {why}." if (why := model_problem(spec)) else ""
        # No part says again what another one has said: a model of a server has its label in its name.
        label = spec.label if spec.label not in spec.name else ""
        served = spec.model_name if spec.model_name not in f"{spec.name} {label}" else ""
        # Most servers speak the interface of one provider: its name would say nothing of where they are.
        place = endpoint_of(spec) if spec.has_server or not label else ""
        score = memory.score() if (memory := memory_of(spec, self._app.settings)) is not None else None
        parts = (score.text if score is not None else "", f"{place} {served}".strip())
        is_set_up = spec.name == self.default_model() or self._app.loaded.is_set_up(spec)
        note = " · ".join(filter(None, parts))
        return ModelRow(name=spec.name, label=label, note=note, missing=missing, is_set_up=is_set_up)

    def images_key(self, model: str) -> str:
        """Return the key that says that a model sees images, and its file; empty if a registry says no already."""
        for registry in self._app.loaded.registries:
            spec = registry.model(model) if registry is not None else None
            if registry is not None and spec is not None and spec.has_server and spec.name not in ALWAYS_THERE:
                file = registry.source if registry is self._app.loaded.site else show_folder(str(self._app.loaded.path))
                return f'"images": true in models.{model} of {file}' if spec.images is None else ""
        return ""

    async def model_problem(self, name: str) -> str:
        """Return why a model will probably not answer now, in sentences; empty if it may, or if there is none."""
        spec = self._app.rights.model(name)
        if spec is None or model_problem(spec):
            return ""
        with count_work("asking the model's server"):
            return (await self._ask_server(spec)).missing

    def personas(self) -> Sequence[tuple[str, str]]:
        """Return the names of the available personas, each with its description."""
        return self._app.rights.personas()

    def persona(self, session: SessionView) -> str:
        """Return the name of a session's persona: the user's choice, else the role's."""
        now = session.snapshot()
        try:
            return self._app.rights.persona(now.role, chosen=now.persona)
        except ConfigError:
            return now.persona

    def skills(self) -> Skills:
        """Return the skills of the user and of the trusted workspace, the user's read again."""
        return self._app.configuration.skills(fresh=True)

    # Pending calls, servers, files, doctor

    def all_pending(self) -> "AllPending":
        """Return what waits for a decision in all sessions of the user."""
        from chatops.wiring.all_pending import AllPending  # with the sheet of calls, which the start does not need

        return AllPending(self._app)

    def servers(self, *, reconnect: str = "") -> str:
        """Return the state of the MCP servers as text, after connecting to the one named `reconnect`."""
        servers = self._app.servers
        if reconnect and not servers.reconnect(reconnect):
            raise unknown_name("MCP server", reconnect, [status.name for status in servers.statuses()])
        lines = [line for status in servers.statuses() for line in (*status_lines(status), "")]
        none = "The registry names no MCP server. chatops mcp add NAME COMMAND|URL adds one."
        return "\n".join(lines).rstrip() or none

    async def log_in(self, server: str) -> str:
        """Start a login at an MCP server, and return the instructions."""
        return LOGIN_TEXT.format(url=await self._app.servers.begin_login(server))

    async def doctor(self) -> str:
        """Return what is configured and what is missing, as text."""
        from chatops.wiring.doctor import doctor_text

        return await asyncio.to_thread(doctor_text, self._app)

    async def open_file(self, file: FileRef) -> str:
        """Open a kept file with the system's program for its type; return what was done. Raises ChatopsError."""
        return await asyncio.to_thread(open_file, self._app.files, file)

    async def paste_image(self) -> str:
        """Keep the image on the clipboard, and return the name by which a message attaches it. Raises ChatopsError."""
        file = await asyncio.to_thread(self._app.files.keep_pasted, await image_on_clipboard(os.environ))
        if file.problem:
            raise ChatopsError(f"The image on the clipboard was not attached: {file.problem}.")
        return file.path

    async def picture(self, image: FileRef, *, preview: bool, fine: bool) -> "Picture | None":
        """Return what can be shown of a kept image, None if it is gone; as wanted and possible, with previews."""
        from chatops.tools.picture import picture_of

        data = await asyncio.to_thread(self._app.files.read, image)
        return None if data is None else await asyncio.to_thread(picture_of, data, preview=preview, fine=fine)

    async def _ask_server(self, spec: ModelSpec) -> "ModelReach":
        """Ask the server of a model, which takes a few seconds at most.

        One whose key is asked of a program or a keyring, which may ask the user in turn, is not asked.
        """
        from chatops.wiring.model_reach import ModelReach, Reachability, probe_model  # slow to import

        if why := model_problem(spec):
            return ModelReach(spec=spec, reachability=Reachability.ABSENT, text=f"It {why}.")
        if spec.key.command or spec.key.keyring:
            return ModelReach(spec=spec, reachability=Reachability.THERE, text="")
        return await probe_model(spec, require=self._app.limits.sandbox().require)

    def _role_row(self, name: str) -> RoleRow:
        try:
            grant = self._app.grant_for(name)
        except ConfigError as error:
            return RoleRow(name=name, model="", tools=(), description=str(error))
        model = grant.models[0]
        return RoleRow(
            name=name,
            model=model.label or model.name,
            tools=tuple(tool.name for tool in grant.tools),
            rights=rights_in_words(grant),
        )


def open_file(files: SessionFiles, file: FileRef) -> str:
    """Start the program and return what was done, as a sentence. Raises ChatopsError."""
    place = files.path_of(file)
    if place is None or files.read(file) is None:
        raise ChatopsError(f"{file} is not there any more.", advice="Nothing was opened.")
    if not can_be_opened(file):
        raise ChatopsError(f"{file} is of a type that is not opened from here.", advice=f"It is kept as {place}")
    name = "open" if sys.platform == "darwin" else "xdg-open"
    program = shutil.which(name, path=_PROGRAM_PATH)
    if program is None:
        raise ChatopsError(f"There is no {name} here to open {file}.", advice=f"It is kept as {place}")
    shared = {variable: os.environ[variable] for variable in (*DISPLAY, *_DESKTOP_VARIABLES) if variable in os.environ}
    try:
        opener = subprocess.Popen(
            [program, str(place)],
            cwd="/",
            env={**clean_environment(os.environ), **shared},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise ChatopsError(f"{program} cannot be started: {error.strerror}.", advice=f"It is kept as {place}") from None
    # It may run for as long as the file is shown, and has to be waited for by someone.
    Thread(target=opener.wait, daemon=True).start()
    return f"Opened {file} with {name}."
