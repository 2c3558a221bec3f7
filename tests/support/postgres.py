"""A PostgreSQL server of the tests, in a folder of its own and owned by an ordinary user."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

AS_NOBODY = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
"""Starts a command of root as an ordinary user."""


def find_programs() -> Path | None:
    """Return the folder with the programs of the newest version that is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


class Server:
    """A server that listens on a socket, and on an address if asked to. It can be stopped and started again."""

    def __init__(self, folder: Path, *, port: int = 0, durable: bool = False, address: str = "127.0.0.1") -> None:
        programs = find_programs()
        assert programs is not None
        self.folder, self._programs, self._port, self._durable = folder, programs, port, durable
        self._address = address if port else ""
        self.url = f"postgresql://chatops@/postgres?host={folder}{f'&port={port}' if port else ''}"
        if os.getuid() == 0:
            shutil.chown(folder, "nobody")
        self._run("initdb", "-D", "data", "-U", "chatops", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        with (folder / "data" / "pg_hba.conf").open("a") as permitted:
            permitted.write("hostssl all all samenet trust\n")

    def start(self) -> None:
        listens = f"-c listen_addresses={self._address} -c port={self._port or 5432}"
        options = f"{listens} -c unix_socket_directories={self.folder} -c fsync={'on' if self._durable else 'off'}"
        self._run("pg_ctl", "-w", "-D", "data", "-l", "log", "-o", options, "start")

    def stop(self, how: str = "immediate") -> None:
        self._run("pg_ctl", "-w", "-D", "data", "-m", how, "stop")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        if os.getuid() == 0:
            command = [*AS_NOBODY, *command]
        with (self.folder / f"{program}.out").open("a+") as out:
            subprocess.run(command, cwd=self.folder, check=True, stdout=out, stderr=out, stdin=subprocess.DEVNULL)


@contextmanager
def server(*, port: int = 0, durable: bool = False, address: str = "127.0.0.1") -> Iterator[Server]:
    """Yield a server that runs, also at `port` of `address` unless that is 0, then stop it and remove its folder.

    One that is `durable` flushes to the disk.
    """
    folder = Path(tempfile.mkdtemp(prefix="chatops-pg-"))
    try:
        made = Server(folder, port=port, durable=durable, address=address)
        made.start()
        try:
            yield made
        finally:
            made.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
