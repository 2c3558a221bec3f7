"""Bind a job to the options and the place that it was started with.

It continues by itself only there: started by its user, who owns the store, on the same host and boot, in the same
folders, with the same key of the model in its variable, in a sandbox that is no weaker.

Others can write to a database. There a job has a seal, a digest of the row with a key of the data folder. Without it no
job is started, and no option of it is used: options name a registry, folders and rules.
"""

import hashlib
import json
import os
from dataclasses import asdict, replace
from pathlib import Path

from chatops.config.folder_identity import folder_identity
from chatops.config.paths import REGISTRY_VARIABLE, find_paths
from chatops.domain.canonical import JsonValue, json_or_text
from chatops.domain.errors import ChatopsError
from chatops.domain.ids import SessionId
from chatops.domain.sandbox import SandboxLevel, SandboxSpec
from chatops.domain.sanitize import show_path
from chatops.domain.tools import AccessLevel
from chatops.engine.state import TurnState
from chatops.policy.budget import Budget
from chatops.policy.registry import ModelSpec
from chatops.runtime.session import Session
from chatops.store.base import JobRow
from chatops.store.jobs import with_seal
from chatops.store.process_identity import this_process
from chatops.store.store import Store
from chatops.wiring.app import App
from chatops.wiring.not_started import NotStarted, WhyNot, why_no_answer
from chatops.wiring.stored import Options

_KEY_DIGITS = 6
"""Hex digits of the digest of a model's key: enough to tell two keys apart, too few to find one by trying."""
FOREIGN_OPTIONS = "others can write to the store, and its options were not written by this user on this machine"


def job_row(app: App, session: Session, *, on_approval: str = "pause") -> JobRow:
    """Return the row for the unfinished turn of a session. May run the probe of the sandbox: call it in a thread."""
    chosen, state = app.options, session.state
    assert state is not None
    registry = chosen.registry or os.environ.get(REGISTRY_VARIABLE)
    options = {
        "registry": str(Path(registry).resolve()) if registry else "",
        "workspace": str(app.workspace),
        "access": None if chosen.access is None else chosen.access.word,
        "role": chosen.role,
        "model": chosen.model,
        "max_rounds": chosen.max_rounds,
        "approve": list(chosen.approvals),
        "summary": chosen.summary,
        "budget": asdict(chosen.budget),
        "add_dir": {"read": list(chosen.sandbox.read), "write": list(chosen.sandbox.write)},
        "on_approval": on_approval,
        "addresses": _model_addresses(app, state),
        "added": _added_folders(chosen),
    }
    me = this_process()
    row = JobRow(
        session=app.store.session(session.session_id),
        turn_id=state.turn_id,
        options=json.dumps(options),
        uid=os.getuid(),
        host=me.host,
        boot_id=me.boot_id,
        folder=_folder_identity(app.workspace),
        level=int(app.limits.sandbox_level()),
    )
    return seal_if_shared(app.store, row)


def seal_if_shared(store: Store, row: JobRow) -> JobRow:
    """Return the row with a seal if others can write to the store. Raises ConfigError if no key can be kept."""
    return with_seal(row, find_paths(os.environ).data) if store.owner is None else row


def has_own_options(store: Store, row: JobRow) -> bool:
    """Return True if nobody else can have written the options of a job."""
    return store.owner is not None or row.options == seal_if_shared(store, row).options


def bind_here(app: App, row: JobRow) -> JobRow:
    """Return the row bound to this host, boot, folder, sandbox and the models' addresses: the user starts it here.

    Raises StoreError.
    """
    me, addresses = this_process(), _model_addresses(app, app.store.load_turn(row.turn_id))
    bound = replace(
        row,
        options=_change_options(row, addresses=addresses, added=_added_folders(app.options)),
        uid=os.getuid(),
        host=me.host,
        boot_id=me.boot_id,
        folder=_folder_identity(app.workspace),
        level=int(app.limits.sandbox_level()),
        not_started="",
        seen=False,
    )
    return seal_if_shared(app.store, bound)


def add_models(app: App, row: JobRow, state: TurnState) -> JobRow:
    """Return the row bound also to the addresses of models that the user has chosen since. Keep the known ones."""
    known = _stored_options(row).get("addresses") or {}
    options = _change_options(row, addresses={**_model_addresses(app, state), **known})
    return seal_if_shared(app.store, replace(row, options=options))


def options_of(row: JobRow) -> Options:
    """Return the options that a job was started with."""
    value = _stored_options(row)
    added = value.get("add_dir") or {}
    return Options(
        registry=Path(value["registry"]) if value.get("registry") else None,
        workspace=Path(value.get("workspace") or row.session.workspace),
        access=AccessLevel[value["access"].upper()] if value.get("access") else None,
        role=value.get("role"),
        model=value.get("model"),
        max_rounds=value.get("max_rounds"),
        approvals=tuple(value.get("approve") or ()),
        summary=bool(value.get("summary")),
        budget=Budget(**value.get("budget") or {}),
        sandbox=SandboxSpec(read=tuple(added.get("read") or ()), write=tuple(added.get("write") or ())),
        via="headless",
    )


def on_approval_of(row: JobRow) -> str:
    """Return what the job does with a call that no rule answers: ``pause`` or ``deny``."""
    return "deny" if _stored_options(row).get("on_approval") == "deny" else "pause"


def _stored_options(row: JobRow) -> dict:  # type: ignore[type-arg]
    value = json_or_text(row.options)
    return dict(value) if isinstance(value, dict) else {}


def _change_options(row: JobRow, **options: JsonValue) -> str:
    return json.dumps({**_stored_options(row), **options})


def _folder_identity(folder: Path) -> str:
    """Return the identity of a folder; empty if it is gone."""
    try:
        status = folder.stat()
    except OSError:
        return ""
    # Some file systems do not tell when a folder was created.
    return folder_identity(folder) or f"{status.st_dev}:{status.st_ino}"


def _added_folders(chosen: Options) -> dict[str, JsonValue]:
    """Return the identity of each folder that was added, by its path."""
    return {path: _folder_identity(Path(path)) for path in (*chosen.sandbox.read, *chosen.sandbox.write)}


def _folder_identities(row: JobRow) -> dict[str, str]:
    return {str(options_of(row).workspace): row.folder, **_stored_options(row).get("added", {})}


def moved_folders(row: JobRow, bound: JobRow) -> list[str]:
    """Return the paths at which `bound`, the same job bound again, has other folders."""
    before = _folder_identities(row)
    return [path for path, identity in _folder_identities(bound).items() if before.get(path, identity) != identity]


def _models_of(app: App, state: TurnState) -> list[ModelSpec]:
    found = (app.rights.model(target.name) for target in state.grant.models)
    return [spec for spec in found if spec is not None]


def _model_addresses(app: App, state: TurnState) -> dict[str, str]:
    """Return the digest of the address of each model and the mark of its key, joined by a colon, by its name."""
    return {spec.name: f"{_url_digest(spec)}:{_key_mark(spec, state.session_id)}" for spec in _models_of(app, state)}


def _url_digest(spec: ModelSpec) -> str:
    """Return a digest of a model's address, which may hold a password."""
    return hashlib.sha256(spec.api_url.encode("utf-8", "surrogatepass")).hexdigest()


def _key_mark(spec: ModelSpec, session_id: SessionId) -> str:
    """Return what tells a key of the environment from another one, too short to find the key by; empty without one."""
    key = os.environ.get(spec.key.env, "").strip() if spec.key.env else ""
    if not key:
        return ""
    return hashlib.sha256(f"{session_id} {key}".encode("utf-8", "surrogatepass")).hexdigest()[:_KEY_DIGITS]


def why_not_here(store: Store, row: JobRow) -> NotStarted | None:
    """Return why a job must not continue by itself from here; None if it may."""
    me, uid = this_process(), os.getuid()
    if row.uid != uid:
        return NotStarted(WhyNot.OWNER, str(row.uid))
    if store.owner not in (uid, None):
        return NotStarted(WhyNot.STORE)
    if row.host != me.host:
        return NotStarted(WhyNot.HOST, row.host)
    if row.boot_id != me.boot_id:
        return NotStarted(WhyNot.BOOT)
    if not has_own_options(store, row):
        return NotStarted(WhyNot.STORE, FOREIGN_OPTIONS)
    try:
        return _why_no_folder(row) or _why_not_by_registry(App(options_of(row), store=store), row)
    except ChatopsError as error:
        return NotStarted(WhyNot.FAILED, str(error))


def _why_no_folder(row: JobRow) -> NotStarted | None:
    """Return which of its folders is gone, or is another one than that in which the job was started."""
    for path, before in _folder_identities(row).items():
        if not (folder := _folder_identity(Path(path))):
            return NotStarted(WhyNot.FOLDER_GONE, show_path(path))
        if folder != before:
            return NotStarted(WhyNot.FOLDER, show_path(path))
    return None


def _why_not_by_registry(app: App, row: JobRow) -> NotStarted | None:
    """Return why the models or the sandbox that its registry gives now are not those of the job."""
    if app.loaded.broken is not None:
        raise app.loaded.broken
    if (why := _why_no_model(app, row, app.store.load_turn(row.turn_id))) is not None:
        return why
    level = app.limits.sandbox_level()
    return NotStarted(WhyNot.SANDBOX, level.word) if level < SandboxLevel(min(row.level, SandboxLevel.HARD)) else None


def _why_no_model(app: App, row: JobRow, state: TurnState) -> NotStarted | None:
    """Return why none of the turn's models can be asked from here, or which is at another address."""
    addresses = _stored_options(row).get("addresses") or {}
    models = _models_of(app, state)
    for spec in models:
        # The turn may ask each of them, so one that can be asked is not enough.
        if spec.name not in addresses:
            return NotStarted(WhyNot.MODEL, f"{spec.name} was chosen after it was started")
        address, _, key = addresses[spec.name].partition(":")
        if _url_digest(spec) != address:
            return NotStarted(WhyNot.MODEL, f"{spec.name} is at another address now")
        key_now = _key_mark(spec, state.session_id)
        # A variable that is not set now is not another key: `why_no_answer` reports it.
        if key and key_now and key != key_now:
            return NotStarted(WhyNot.MODEL, f"{spec.name} has another key in {spec.key.env} now")
    return why_no_answer(models)
