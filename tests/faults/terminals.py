"""The chat on terminals of every kind, without the fixtures of a test."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.installation import Installation
from tests.faults.entry_points import FaultyChat, Provider, patient_registry


@contextmanager
def chat_in(
    folder: Path, *, env: Mapping[str, str] | None = None, cols: int = 110, rows: int = 36, **model: Any
) -> Iterator[FaultyChat]:
    """The chat as coder, its home, workspace and server in `folder`; `env` and the size are its terminal's."""
    home = folder / "home"
    home.mkdir(mode=0o700)
    with Provider() as provider:
        installation = Installation.with_note(folder / "project", home)
        installation.use(patient_registry(provider.server.url, **model))
        variables = {"CHATOPS_HOME": str(home), "HOME": str(folder), **(env or {})}
        with installation.open("--role", "coder", env=variables, cols=cols, rows=rows) as terminal:
            # The sign between the parts of the status line is another one where the terminal has no such signs.
            terminal.wait_for("coder ")
            terminal.wait_for("ctx ")
            yield FaultyChat(installation, provider, terminal)
