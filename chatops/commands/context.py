"""Helpers that the commands share: options and store behind the flags, and lookups of names on the command line.

A command that only reads the store opens it with `open_stored`. That loads no registry, no tools and no event loop,
which take longer than the command itself. `application` opens all of that for the other commands.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from chatops.commands.workspace import read_confirmation
from chatops.config.paths import REGISTRY_VARIABLE, SITE_REGISTRY, Paths, find_paths
from chatops.domain.errors import ChatopsError, ConfigError, NoSuchSessionError
from chatops.domain.ids import CallId, SessionId, session_of
from chatops.domain.tools import AccessLevel
from chatops.headless.screen import screen, table
from chatops.policy.budget import parse_budget
from chatops.wiring.stored import (
    Options,
    Storage,
    added_folders,
    in_session_workspace,
    make_store,
    open_store,
    start_logging,
    workspace_of,
)

if TYPE_CHECKING:
    from argparse import Namespace

    from chatops.domain.canonical import JsonValue
    from chatops.store.base import PendingCallRow, SessionInfo
    from chatops.store.store import Store
    from chatops.wiring.rights import RegistryRights

MIN_ABBREVIATION = 6
"""Characters of a call's id, at least, that may stand for it. Fewer would fit several calls too often."""


def show_list(
    arguments: "Namespace",
    values: "Sequence[JsonValue]",
    header: "Sequence[str]",
    rows: "Sequence[Sequence[str]]",
    *,
    notes: "Iterable[str]" = (),
    empty: str = "",
) -> int:
    """Print `values` as JSON if that is wanted, else `rows` and after them `notes`. Return exit code 0.

    `empty` is a sentence to print instead of no rows; without one, the header and the notes are printed.
    """
    view = screen()
    if arguments.output_format == "json":
        view.json(values)
        return 0
    if empty and not rows:
        view.say(empty)
        return 0
    view.answer(table(header, rows))
    for note in notes:
        view.say(note)
    return 0


def confirm(question: str, *, word: str = "yes") -> bool:
    """Print a question that tells the user to type `word`. Return True if that is done. For yes, y is enough."""
    screen().say(question)
    return read_confirmation(word)


def options(arguments: "Namespace", *, via: str = "headless", storage: Storage = Storage.NEEDED) -> Options:
    """Return the flags as Options. `via` is the UI that decisions are recorded under."""
    access = getattr(arguments, "access", None)
    registry = getattr(arguments, "registry", None)
    workspace = getattr(arguments, "workspace", None)
    return Options(
        registry=Path(registry).expanduser() if registry else None,
        workspace=Path(workspace).expanduser() if workspace else None,
        access=AccessLevel[access.upper()] if access else None,
        role=getattr(arguments, "role", None),
        model=getattr(arguments, "model", None),
        max_rounds=getattr(arguments, "max_rounds", None),
        budget=parse_budget(getattr(arguments, "budget", ())),
        approvals=tuple(getattr(arguments, "approve", ())),
        summary=bool(getattr(arguments, "summary", False)),
        sandbox=added_folders(getattr(arguments, "add_dir", ())),
        storage=storage,
        store=Path(store).expanduser() if (store := getattr(arguments, "store", None)) else None,
        via=via,
    )


@dataclass
class Stored:
    """The user's store, and what a command may need beside it."""

    store: "Store"
    workspace: Path
    paths: Paths
    options: Options

    @cached_property
    def rights(self) -> "RegistryRights":
        """Rights of the roles, which take reading the registry and loading the tools."""
        from chatops.wiring.app import App

        return App(self.options, store=self.store).rights


@contextmanager
def open_stored(arguments: "Namespace", *, storage: Storage = Storage.READ) -> "Iterator[Stored]":
    """Open the store for a command that needs nothing else, then close it. Its notices are printed last.

    Raises ConfigError and StoreError, also for a registry that forbids the program to start.
    """
    chosen = options(arguments)
    workspace = workspace_of(chosen.workspace)
    paths = find_paths(os.environ)
    paths.prepare()
    start_logging(paths.log)
    _check_registries(chosen, paths)
    store = make_store(chosen.store, paths, storage, registry=chosen.registry)
    store.surface = chosen.via
    try:
        yield Stored(store, workspace, paths, chosen)
    finally:
        for notice in (*paths.notices, *store.notices):
            screen().say(notice)
        store.close()


def _check_registries(chosen: Options, paths: Paths) -> None:
    """Raise ConfigError if a named registry is missing, or if that of the site cannot be trusted."""
    if chosen.registry is None and not os.environ.get(REGISTRY_VARIABLE) and not os.path.lexists(SITE_REGISTRY):
        return
    from chatops.config.registry import load_registry

    load_registry(path=chosen.registry, paths=paths, env=os.environ)


def in_its_workspace(chosen: Options, name: str) -> Options:
    """Return `chosen` with the workspace of session `name`. Raises NoSuchSessionError, and ConfigError."""
    # Read-only: a damaged store is reported when the session is opened.
    with open_store(Storage.READ, registry=chosen.registry) as store:
        return in_session_workspace(chosen, find_session(store, name))


def find_session(store: "Store", name: str) -> "SessionInfo":
    """Return a session by id or unique prefix. Raises NoSuchSessionError, which says how to list the sessions."""
    if not name:
        raise ConfigError("Which session? None was named.", advice="chatops sessions list shows them.")
    try:
        return store.session(SessionId(name))
    except NoSuchSessionError as error:
        # The id is shown as the user wrote it. The screen sanitises what it prints.
        raise NoSuchSessionError(
            f"There is no session {name!r}.", advice="chatops sessions list shows them."
        ) from error


def last_session(store: "Store", workspace: Path) -> "SessionInfo":
    """Return the session of this workspace that was used last. Raises NoSuchSessionError if there is none."""
    info = store.last_session(str(workspace))
    if info is None:
        raise NoSuchSessionError(
            f"There is no session in {workspace} yet.",
            advice="Start one without -c, or see those of other folders: chatops sessions list --all",
        )
    return info


def find_call(store: "Store", name: str) -> "PendingCallRow":
    """Return a pending call by its id, or by at least `MIN_ABBREVIATION` characters of its beginning or end.

    The abbreviation must fit one call only, and the full id is printed. A session's id is such an abbreviation if only
    one of its calls is pending.

    Raises ConfigError if several calls fit, ChatopsError if none does.
    """
    pending = {queued.pending.call.id: queued for queued in store.pending_calls()}
    if queued := pending.get(CallId(name)):
        return queued
    fitting = (
        [id for id in pending if id.startswith(name) or id.endswith(name)] if len(name) >= MIN_ABBREVIATION else []
    )
    if len(fitting) == 1:
        screen().say(f"{name} means {fitting[0]}.")
        return pending[fitting[0]]
    if fitting:
        ids = ", ".join(fitting)
        raise ConfigError(f"{name!r} could mean several pending calls: {ids}.", advice="Give the whole id.")
    from chatops.runtime.descriptions import describe_decision, find_decision

    if "." in name and (answer := find_decision(store, session_of(name), CallId(name))) is not None:
        raise ChatopsError(
            f"No pending call {name!r}: it was {describe_decision(answer)}, and the first decision counts.",
            advice="chatops audit list shows what was decided.",
        )
    near = get_close_matches(name, pending, n=1, cutoff=0.9)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise ChatopsError(
        f"No pending call {name!r}.{hint}",
        advice="chatops approvals list shows pending calls, chatops audit list decided ones. "
        f"An id may be shortened to {MIN_ABBREVIATION} or more characters of its beginning or end.",
    )
