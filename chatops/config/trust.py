"""Trust in the files of a workspace: the user's answers, kept outside the workspace.

Theory of operation

There is one record for each folder, a file of the data folder that is named by the folder's path. It holds the
identity of the folder and, for each item, kind, path, digest and the user's answer. A record with another identity
counts for nothing: the folder has been replaced, moved or copied. A record that cannot be read is an error and never
counts as absent: the next answer would overwrite all others.

An item is in force if its digest, computed from the bytes in memory, is the one that was trusted. `WorkspaceTrust`
reads the workspace when it is created and when the user is asked, and not in between. So a file that changes while
chatops runs has no effect, and a changed one is ignored from the next start on until the user trusts it again.

Trust in a workspace never starts a program and changes no rights. Its tools, MCP servers and registry are listed, and
their digests noted as seen, not as trusted.

The user's own tools are trusted in the same way, see `own_tools`.

The user also decides on starting MCP servers where the sandbox is below level basic. A yes is bound to what would run,
which `mcp.process` describes, and holds in one workspace.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Literal

from chatops.config.entries import decode_value, encode_value
from chatops.config.folder_identity import folder_identity
from chatops.config.paths import file_version, lock_folder, packaged_registry, plain_file, write_private
from chatops.config.registry import Loaded
from chatops.config.workspace_files import Item, ItemKind, WorkspaceFiles, read_workspace
from chatops.domain.errors import ChatopsError, ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sanitize import sanitize, show_path
from chatops.domain.wording import plural

_MAX_NAMED = 3
"""Items that a notice names."""
_MAX_RECORD_BYTES = 8_000_000
"""A longer record is cut off, so that it counts as damaged: no workspace brings as many files."""
SHOWN_DIGEST = 16
"""Hex digits of a digest that are shown. The whole digest is compared."""
ADVICE = "To see it: chatops trust, or /trust"


class TrustAnswer(StrEnum):
    """The user's answer about one item."""

    TRUSTED = "trusted"
    DECLINED = "declined"
    SEEN = "seen"
    """Shown when the user trusted the others; of a kind that this version does not use (`ItemKind.is_used`)."""
    REVOKED = "revoked"
    """Nothing of the folder is trusted any more. Only the decision log has it: there is no record then."""


@frozen_dataclass
class TrustEntry:
    """The stored answer about one item."""

    kind: str
    path: str
    digest: str
    answer: TrustAnswer

    @property
    def key(self) -> tuple[str, str]:
        """As `Item.key`."""
        return self.kind, self.path


@frozen_dataclass
class TrustRecord:
    """The stored answers about one folder."""

    folder: str
    """Identity of the folder."""
    version: Literal[1] = 1
    entries: tuple[TrustEntry, ...] = ()

    def entry(self, key: tuple[str, str]) -> TrustEntry | None:
        """Return the entry of an item."""
        return next((entry for entry in self.entries if entry.key == key), None)


class ItemState(StrEnum):
    """State of an item against the record."""

    NEW = "new"
    CHANGED = "changed"
    TRUSTED = "trusted"
    SEEN = "not used yet"
    DECLINED = "declined"
    UNUSABLE = "unusable"


ASKED = frozenset({ItemState.NEW, ItemState.CHANGED})
"""States that the user is asked about."""
_PROGRAMS = (ItemKind.OWN_TOOL, ItemKind.SERVER_START)
"""Kinds that run as the user. No question is about one of these and anything else."""


@frozen_dataclass
class Listed:
    """An item with its state."""

    item: Item
    state: ItemState


@frozen_dataclass
class TrustQuestion:
    """Question about the files of a workspace, exactly as it is shown to the user."""

    folder: str
    """Identity of the folder."""
    path: str
    """Path of the folder."""
    listed: tuple[Listed, ...]
    left_out: tuple[str, ...] = ()

    @property
    def kind(self) -> ItemKind | None:
        """Kind of the items if they are programs that run as the user; None for the files of a workspace."""
        return next((row.item.kind for row in self.listed if row.item.kind in _PROGRAMS), None)

    @property
    def is_open(self) -> bool:
        """True if something has no answer yet."""
        return any(row.state in ASKED for row in self.listed)

    @property
    def is_answerable(self) -> bool:
        """True if something is not trusted and could be."""
        return any(row.state in ASKED or row.state is ItemState.DECLINED for row in self.listed)

    @property
    def usable(self) -> tuple[Listed, ...]:
        """Items that the user can trust."""
        return tuple(row for row in self.listed if row.state is not ItemState.UNUSABLE)

    @property
    def digest(self) -> str:
        """Digest over folder and items, without the states: ``chatops trust --digest`` names with it what was shown."""
        parts = [self.folder, *([*row.item.key, row.item.digest] for row in self.usable)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@frozen_dataclass
class TrustedWorkspace:
    """Trusted content of a workspace that is in force."""

    notes: tuple[Item, ...] = ()
    workflows: tuple[Item, ...] = ()
    skills: tuple[Item, ...] = ()
    own_tools: tuple[Item, ...] = ()
    """Of the config folder, see `own_tools`."""


@frozen_dataclass(kw_only=False)
class _TrustReading:
    """Files and record as read at one time, and the content in force because of them."""

    files: WorkspaceFiles
    question: TrustQuestion
    in_force: TrustedWorkspace


def _is_packaged(item: Item) -> bool:
    try:
        return item.digest == hashlib.sha256(packaged_registry().read_bytes()).hexdigest()
    except OSError:
        return False


class WorkspaceTrust:
    """The trust in one workspace. May be used from any thread: each reading replaces all values at once.

    Subclasses read other files: they replace `_read_files`. The constructor calls it, so they set its fields before.
    """

    def __init__(self, workspace: Path, *, folder: Path, loaded: Loaded | None = None) -> None:
        """Read the workspace and its record in `folder`.

        The files of the registry in force, `loaded`, are the user's own, also inside the workspace.

        Raises ConfigError if the record cannot be read.
        """
        self._workspace = workspace
        # In a checkout of chatops itself the packaged registry lies in the workspace.
        self._own = (packaged_registry(), *(() if loaded is None else (loaded.path, loaded.workflow_folder)))
        self._file = record_file(workspace, folder=folder)
        self._record_version = file_version(self._file)
        self._current = self._judge(self._read_files())

    @property
    def question(self) -> TrustQuestion:
        """Everything that the workspace brings, as of the last reading."""
        return self._current.question

    @property
    def in_force(self) -> TrustedWorkspace:
        """The trusted content."""
        return self._current.in_force

    def reread_record(self) -> bool:
        """Read the record again if another process has changed it. Return True if it has.

        Raises ConfigError once if it cannot be read. Then everything stays in force as it was.
        """
        version = file_version(self._file)
        if version == self._record_version:
            return False
        self._record_version = version
        self._current = self._judge(self._current.files)
        return True

    def reread(self) -> TrustQuestion:
        """Read the workspace and the record again. What has changed is no longer in force.

        Raises ConfigError if the record cannot be read. Then everything stays in force as it was.
        """
        self._record_version = file_version(self._file)
        self._current = self._judge(self._read_files())
        return self.question

    def trust(self, shown: TrustQuestion) -> tuple[str, ...]:
        """Trust what was `shown`, and nothing else. Return a sentence for each item that has changed since.

        Raises ChatopsError if the folder is another one now, ConfigError if the answer cannot be stored.
        """
        return self._store_answer(shown, TrustAnswer.TRUSTED)

    def decline(self, shown: TrustQuestion) -> tuple[str, ...]:
        """Ignore what was `shown` and is not trusted yet, without asking again until it changes.

        Returns and raises as `trust`.
        """
        return self._store_answer(shown, TrustAnswer.DECLINED)

    def revoke(self) -> bool:
        """Forget all answers about this folder. Returns and raises as `revoke_trust`."""
        was_trusted = revoke_trust(self._workspace, folder=self._file.parent)
        self.reread()
        return was_trusted

    def notices(self) -> tuple[str, ...]:
        """Return what is ignored and where to see it, in one line; empty if nothing is."""
        listed, parts = self.question.listed, []
        used = [row for row in listed if row.item.kind.is_used]
        if untrusted := [row for row in used if row.state in (ItemState.NEW, ItemState.DECLINED)]:
            parts.append(f"Ignored in this folder until you trust it: {_first_names(untrusted)}.")
        if changed := [row for row in used if row.state is ItemState.CHANGED]:
            parts.append(f"Changed since you trusted it, so ignored: {_first_names(changed)}.")
        unusable = [row for row in used if row.state is ItemState.UNUSABLE]
        parts += [f"{show_path(row.item.path)} is ignored: {row.item.problem}." for row in unusable[:_MAX_NAMED]]
        unseen = [row for row in listed if row.state in ASKED and not row.item.kind.is_used]
        if unseen and not parts:
            parts.append(f"This folder brings {_first_names(unseen)}: not used by this version.")
        return (" ".join([*parts, f"{ADVICE}."]),) if parts else ()

    def _store_answer(self, shown: TrustQuestion, answer: TrustAnswer) -> tuple[str, ...]:
        """Store the answer about what was shown and is still the same."""
        with lock_folder(self._file):
            now = self._read_files()
            # Without an identity the folder is gone, may not be read, or could be replaced unseen.
            if now.folder != shown.folder or not now.folder:
                self.reread()
                raise ChatopsError(
                    f"{now.path} is another folder now, so nothing was changed.",
                    advice="Look at it again: chatops trust",
                )
            digests = {item.key: item.digest for item in now.items}
            record = read_record(self._file, folder=now.folder)
            entries = {entry.key: entry for entry in record.entries}
            changed = []
            for row in shown.usable:
                item = row.item
                if digests.get(item.key, "") != item.digest:
                    changed.append(f"{show_path(item.path)} has changed meanwhile, so it is not used.")
                    continue
                if answer is TrustAnswer.DECLINED and row.state not in ASKED:
                    continue
                trusts_unused = answer is TrustAnswer.TRUSTED and not item.kind.is_used
                stored = TrustAnswer.SEEN if trusts_unused else answer
                entries[item.key] = TrustEntry(kind=item.kind.value, path=item.path, digest=item.digest, answer=stored)
            write_private(self._file, encode_value(TrustRecord(folder=now.folder, entries=tuple(entries.values()))))
            self._record_version = file_version(self._file)
            self._current = self._judge(now)
            return tuple(changed)

    def _read_files(self) -> WorkspaceFiles:
        files = read_workspace(self._workspace, own=self._own)
        # A checkout of chatops brings the file that an installed copy has too. There is nothing to say of it.
        items = tuple(item for item in files.items if item.kind is not ItemKind.REGISTRY or not _is_packaged(item))
        return replace(files, items=items)

    def _judge(self, files: WorkspaceFiles) -> _TrustReading:
        record = read_record(self._file, folder=files.folder)
        listed = tuple(Listed(item=item, state=_state_of(item, record.entry(item.key))) for item in files.items)
        trusted = [row.item for row in listed if row.state is ItemState.TRUSTED]
        return _TrustReading(
            files=files,
            question=TrustQuestion(folder=files.folder, path=files.path, listed=listed, left_out=files.left_out),
            in_force=TrustedWorkspace(
                notes=tuple(item for item in trusted if item.kind is ItemKind.NOTES),
                workflows=tuple(item for item in trusted if item.kind is ItemKind.WORKFLOW),
                skills=tuple(item for item in trusted if item.kind is ItemKind.SKILL),
                own_tools=tuple(item for item in trusted if item.kind is ItemKind.OWN_TOOL),
            ),
        )


def question_notices(question: TrustQuestion) -> list[str]:
    """Return what the user has to know beside the list: what each kind does, and what cannot be used.

    The texts are sanitised.
    """
    kinds = dict.fromkeys(row.item.kind for row in question.usable)
    notices = [f"{kind.value}: {kind.effect}" for kind in kinds]
    notices += [
        f"{show_path(row.item.path)} cannot be used: {sanitize(row.item.problem, newlines=False)}."
        for row in question.listed
        if row.item.problem
    ]
    return [*notices, *(sanitize(f"{where}: the others are left out.", newlines=False) for where in question.left_out)]


def _state_of(item: Item, entry: TrustEntry | None) -> ItemState:
    """Return the state of an item against its entry in the record."""
    if item.problem:
        return ItemState.UNUSABLE
    if entry is None:
        return ItemState.NEW
    if entry.digest != item.digest:
        return ItemState.CHANGED
    if entry.answer not in (TrustAnswer.TRUSTED, TrustAnswer.SEEN):
        return ItemState.DECLINED
    was_used = entry.answer is TrustAnswer.TRUSTED
    if was_used != item.kind.is_used:
        # Answered in another version of chatops, for which trust in this kind meant something else.
        return ItemState.NEW
    return ItemState.TRUSTED if was_used else ItemState.SEEN


def _first_names(listed: Sequence[Listed]) -> str:
    """Return the first items by name, and the number of the others."""
    names = [show_path(row.item.path) for row in listed[:_MAX_NAMED]]
    more = len(listed) - _MAX_NAMED
    return ", ".join(names) + (f" and {plural(more, 'more file')}" if more > 0 else "")


def record_file(workspace: Path, *, folder: Path) -> Path:
    """Return the file in `folder` that holds the answers about `workspace`."""
    return folder / f"{hashlib.sha256(os.fsencode(workspace)).hexdigest()[:32]}.json"


def read_record(file: Path, *, folder: str) -> TrustRecord:
    """Return the record of the folder with this identity; an empty one if there is none, or one of another folder.

    Raises ConfigError if the record cannot be read, or if others could have written it.
    """
    empty = TrustRecord(folder=folder)
    try:
        with plain_file(file) as (opened, status):
            if status.st_uid != os.getuid() or status.st_mode & 0o022:
                raise _record_error(file, "others can write to it")
            record = decode_value(TrustRecord, opened.read(_MAX_RECORD_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return empty
    except OSError as error:
        raise _record_error(file, error.strerror or str(error)) from None
    except (ValueError, RecursionError):
        raise _record_error(file, "it is damaged") from None
    return record if record.folder == folder else empty


def revoke_trust(workspace: Path, *, folder: Path) -> bool:
    """Forget all answers about `workspace`, whose record is in `folder`. Return False if there were none.

    Raises ConfigError.
    """
    file = record_file(workspace, folder=folder)
    with lock_folder(file):
        try:
            file.unlink()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise ConfigError(
                f"{file} cannot be removed: {error.strerror}.", advice="Check the folder's owner."
            ) from None
    return True


def _record_error(file: Path, why: str) -> ConfigError:
    return ConfigError(
        f"{file}, which records what you trust in this folder, cannot be used: {why}.",
        advice="Repair it, or forget your answers: chatops trust --revoke",
    )


class ServerTrust(WorkspaceTrust):
    """Decisions on the servers that were to start in this process.

    A start is an item whose `path` is the name of the server; its digest covers what would run (`mcp.process`).
    """

    def __init__(self, workspace: Path, *, folder: Path) -> None:
        """Read the record of `workspace` in `folder`. Raises ConfigError."""
        self._starts: dict[str, Item] = {}
        super().__init__(workspace, folder=folder)

    def permits(self, start: Item) -> bool:
        """Return True if the user has said yes to exactly this start; else it becomes part of the question.

        Raises ConfigError if the record cannot be read.
        """
        self._starts[start.path] = start
        listed = self.reread().listed
        return any(row.item == start and row.state is ItemState.TRUSTED for row in listed)

    def _read_files(self) -> WorkspaceFiles:
        items = tuple(self._starts.values())
        path = str(self._workspace)
        return WorkspaceFiles(folder=folder_identity(self._workspace), path=path, items=items)
