"""Tasks beside the sessions of a screen: they load modules, offer models, start MCP servers, watch files and back up.

Models are offered while the demo answers, in one line: a key in the environment, and local servers that list models. No
key is sent to them.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from threading import Event

from chatops.config.registry import Loaded
from chatops.domain.errors import StoreError
from chatops.models.client import warm_up
from chatops.runtime.settings import SessionSettings
from chatops.runtime.view import SessionView
from chatops.store.backup import is_backup_due, make_backup
from chatops.store.base import SAVED
from chatops.wiring.app import App

log = logging.getLogger(__name__)

WARM_UP_AFTER_S = 0.5
"""Seconds after opening until the needs of the first message are loaded. The first key presses come first."""
ROLE_LOOK_S = 1.0
"""Seconds after which a role that was switched to has its MCP servers started, if no message was sent before."""
FILES_LOOK_S = 1.0
"""Seconds between two looks at registry and workspace while nothing else asks for them."""
BACKUP_LOOK_S = 60.0
"""Seconds between two looks at whether the store needs a backup, and nothing runs."""
SAVE_S = 2.0
"""Seconds at least between two tries to save a store that could not be written when it was opened."""
MAX_SAVE_S = 10.0
"""Seconds at most between two such tries. A try may take long: it opens the file, or waits for another process."""
PORT_TIMEOUT_S = 0.3
"""Seconds to wait for one server; local ones answer quickly."""
MAX_RESPONSE_BYTES = 64 * 1024
"""Maximum bytes of a response that are examined."""
USUAL_PORTS: tuple[tuple[int, str], ...] = (
    (11434, "Ollama"),
    (8000, "vLLM"),
    (1234, "LM Studio"),
    (8080, "llama.cpp or Open WebUI"),
    (4000, "LiteLLM"),
)
"""Default ports of model servers."""


class Upkeep:
    """Tasks beside the sessions. They run for as long as the event loop does."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, chat: SessionView) -> None:
        """Start all tasks beside the first session. Those that load modules wait for the first key presses."""
        self._start_task(self._warm_up(chat.snapshot().model), name="warm-up")
        if chat.snapshot().is_demo:
            self._start_task(self._offer_models(chat), name="offer models")
        self._start_task(self._connect_servers(), name="MCP servers")
        self.watch_files()
        self.back_up()

    def watch_files(self) -> None:
        """Watch for a changed registry and a missing workspace from now on, even while nothing asks for them."""
        self._start_task(self._watch_files(), name="files")

    def back_up(self) -> None:
        """Keep a backup of the store that is at most a day old, made while no turn runs.

        A store that could not be written so far is moved into its file first.
        """
        self._start_task(self._back_up(), name="backup")

    def _start_task(self, work: Coroutine[None, None, None], *, name: str) -> None:
        # Kept here, because the event loop keeps no reference to a task.
        self._tasks.append(asyncio.create_task(work, name=name))

    async def _warm_up(self, model: str) -> None:
        """Load what the first message needs, about a second of work in a thread."""
        await asyncio.sleep(WARM_UP_AFTER_S)
        try:
            await asyncio.to_thread(warm_up)
            await self._app.models.prepare(model)
            await asyncio.to_thread(self._app.models.learn_price, model)
        except Exception:
            # The first message tries again and reports the error to the user.
            log.info("the model client could not be prepared", exc_info=True)

    async def _connect_servers(self) -> None:
        await asyncio.sleep(WARM_UP_AFTER_S)
        current = started_for = self._start_servers()
        while True:
            await asyncio.sleep(ROLE_LOOK_S)
            previous, current = current, (self._app.open_sessions.settings, self._app.loaded)
            # A role that the user only passes by is not the same at two looks.
            if current == previous and current != started_for:
                started_for = self._start_servers()

    def _start_servers(self) -> tuple[list[SessionSettings], Loaded]:
        """Start the servers that the open sessions need. Return the settings and the registries that named them."""
        needed_by = self._app.open_sessions.settings
        for settings in needed_by:
            self._app.servers.start_for(settings)
        return needed_by, self._app.loaded

    async def _offer_models(self, chat: SessionView) -> None:
        """Look for a key and for servers on this machine, and notify the user of them."""
        await asyncio.sleep(WARM_UP_AFTER_S)
        found = await offer_text(os.environ)
        if found and chat.snapshot().is_demo:
            chat.notify(found)

    async def _watch_files(self) -> None:
        logged: set[str] = set()
        while True:
            await asyncio.sleep(FILES_LOOK_S)
            for look in (self._app.configuration.look, self._app.look_at_workspace):
                try:
                    await asyncio.to_thread(look)
                except Exception as error:
                    # A failed look must stop neither the watching nor the other look. Each error is logged once.
                    if repr(error) not in logged:
                        logged.add(repr(error))
                        log.exception("files cannot be watched for now")

    async def _save_late(self) -> None:
        """Move a store that is in memory into its file, as soon as that can be written."""
        store, notify = self._app.store, self._app.open_sessions.notify
        took = 0.0
        while reason := store.unsaved:
            # Tries that take long are made less often: at most 2 % of the time, up to MAX_SAVE_S.
            await asyncio.sleep(min(max(SAVE_S, 50 * took), MAX_SAVE_S))
            began = time.monotonic()
            try:
                await asyncio.to_thread(store.save)
            except StoreError as error:
                log.info("nothing can be saved yet: %s", error)
                if store.unsaved != reason:
                    notify(error.full)
            else:
                if not store.unsaved:
                    notify(SAVED)
            took = time.monotonic() - began

    async def _back_up(self) -> None:
        await self._save_late()
        if self._app.store.owner is None:
            return  # A database has backups of its own.
        ended = Event()

        def idle() -> bool:
            return self._app.open_sessions.is_idle and not ended.is_set()

        try:
            while not self._app.store.unsaved:
                await asyncio.sleep(BACKUP_LOOK_S)
                try:
                    await asyncio.to_thread(self._back_up_if_due, idle)
                except StoreError as error:
                    log.info("no backup for now: %s", error)
        finally:
            ended.set()

    def _back_up_if_due(self, idle: Callable[[], bool]) -> None:
        if idle() and is_backup_due(self._app.paths.store, now=time.time()):
            make_backup(self._app.paths.store, idle=idle)


async def offer_text(environ: Mapping[str, str], ports: Sequence[tuple[int, str]] = USUAL_PORTS) -> str:
    """Return everything that could answer, in one line that stays on the screen; empty if nothing. Never raises."""
    found = [part for part in (_key_offer(environ), await _server_offer(ports)) if part]
    return " ".join(["The demo answers.", *found]) if found else ""


def _key_offer(environ: Mapping[str, str]) -> str:
    """Return the offer for a key in the environment. The key's value is not used."""
    if not environ.get("OPENAI_API_KEY", "").strip():
        return ""
    if environ.get("OPENAI_MODEL", "").strip():
        return "OPENAI_API_KEY is set: /model env uses it."
    return "OPENAI_API_KEY is set: name a model in OPENAI_MODEL as well, and /model env uses both."


async def _server_offer(ports: Sequence[tuple[int, str]]) -> str:
    """Return the servers of this machine that list models. They are sent no key."""
    found = await asyncio.gather(*(_lists_models(port) for port, _ in ports))
    offers = [
        f"{name} answers at http://127.0.0.1:{port} (chatops connect http://127.0.0.1:{port})"
        for (port, name), answers in zip(ports, found, strict=True)
        if answers
    ]
    return f"On this machine: {'; '.join(offers)}." if offers else ""


async def _lists_models(port: int) -> bool:
    try:
        async with asyncio.timeout(PORT_TIMEOUT_S):
            return _is_listing(await _ask_port(port))
    except (OSError, TimeoutError, ValueError):
        return False


async def _ask_port(port: int) -> bytes:
    """Return the start of the response to a request for models, headers included."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        lines = ("GET /v1/models HTTP/1.1", f"Host: 127.0.0.1:{port}", "Accept: application/json", "Connection: close")
        writer.write("".join(f"{line}\r\n" for line in (*lines, "")).encode())
        await writer.drain()
        answer = b""
        while len(answer) < MAX_RESPONSE_BYTES and (more := await reader.read(MAX_RESPONSE_BYTES)):
            answer += more
            if _is_listing(answer):
                break
        return answer
    finally:
        writer.close()


def _is_listing(answer: bytes) -> bool:
    """Return True for a list of models or a request for a key. Other programs use these ports too."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status, _, headers = head.partition(b"\r\n")
    code = status.split(b" ")[1:2]
    if b"application/json" not in headers.lower():
        return False
    return code == [b"401"] or (code == [b"200"] and b'"data"' in body)
