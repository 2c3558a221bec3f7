"""Record of a server between runs: its last list of tools, and the tools that were used as they are now.

A role is offered this list until the server is connected. A tool that differs from the one that was used last
is reviewed by the user before it runs again, whatever rules say. One file for each server, mode 0600.
"""

import fcntl
import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from chatops.domain.canonical import JsonValue, digest, parsed
from chatops.mcp.catalogue import Described
from chatops.policy.servers import McpServerSpec

log = logging.getLogger(__name__)

_MOST_BYTES = 8_000_000


def login_file(folder: Path, server: str) -> Path:
    """Return the file of the login at a server, mode 0600. The name of a server has no dot."""
    return folder / f"{server}.login.json"


class Record:
    """The record of one server. A record that cannot be read is empty; one of another command or URL too.

    Other windows write the same file: what they wrote is read before each change, and before `changed` answers.
    """

    def __init__(self, folder: Path, server: McpServerSpec) -> None:
        self._path = folder / f"{server.name}.json"
        self._server = digest(list(server.command), server.url)
        self._tools: tuple[Described, ...] = ()
        self._used: dict[str, str] = {}
        self._seen = (0, 0)
        """Inode and time of the file that was read last."""
        self._read()

    @property
    def tools(self) -> tuple[Described, ...]:
        """The tools that the server listed last."""
        return self._tools

    def changed(self, tool: str, definition: str) -> bool:
        """Return True if `tool` was used before with another definition."""
        self._read()
        return self._used.get(tool, definition) != definition

    def keep_tools(self, tools: Iterable[Described]) -> None:
        """Remember the list of tools."""
        listed = tuple(tools)
        with self._newest():
            if listed != self._tools:
                self._tools = listed
                self._write()

    def keep_used(self, tool: str, definition: str) -> None:
        """Remember that the user let `tool` run as it is now."""
        with self._newest():
            if self._used.get(tool) != definition:
                self._used[tool] = definition
                self._write()

    @contextmanager
    def _newest(self) -> Iterator[None]:
        """Read what other processes wrote, and keep them from writing until the end of the block."""
        with ExitStack() as stack:
            try:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                lock = self._path.with_suffix(".lock")
                descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                stack.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except OSError as error:
                log.warning("the record of a server cannot be locked: %s", error.strerror)
            self._read()
            yield

    def _read(self) -> None:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                state = os.fstat(descriptor)
                seen = (state.st_ino, state.st_mtime_ns)
                if seen == self._seen:
                    return
                self._seen = seen
                stored = parsed(file.read(_MOST_BYTES).decode("utf-8"))
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            log.warning("the record of a server cannot be read: %s", type(error).__name__)
            return
        if not isinstance(stored, dict) or stored.get("server") != self._server:
            return
        tools, used = stored.get("tools"), stored.get("used")
        if isinstance(tools, list):
            self._tools = tuple(one for tool in tools if (one := _described(tool)) is not None)
        if isinstance(used, dict):
            self._used |= {name: text for name, text in used.items() if isinstance(text, str)}

    def _write(self) -> None:
        tools: list[JsonValue] = [
            {"name": one.name, "description": one.description, "input": one.input_schema, "output": one.output_schema}
            for one in self._tools
        ]
        text = json.dumps({"server": self._server, "tools": tools, "used": self._used})
        temporary = self._path.with_suffix(f".{os.getpid()}.tmp")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(text)
            os.replace(temporary, self._path)
        except OSError as error:
            log.warning("the record of a server cannot be written: %s", error.strerror)


def _described(stored: JsonValue) -> Described | None:
    if not isinstance(stored, Mapping):
        return None
    name, description = stored.get("name"), stored.get("description")
    if not isinstance(name, str) or not isinstance(description, str):
        return None
    return Described(
        name=name, description=description, input_schema=stored.get("input"), output_schema=stored.get("output")
    )
