"""``chatops sessions``: list, show, search, rename, fork, export, import and delete stored sessions."""

import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from chatops.commands.context import Stored, confirm, find_session, open_stored, show_list
from chatops.config.paths import write_new_private
from chatops.domain.errors import AlreadyStoredError, ConfigError, SessionBusyError
from chatops.domain.wording import excerpt, plural
from chatops.headless.json_values import fields_json, plain
from chatops.headless.screen import screen, table, when
from chatops.store.base import ALL
from chatops.store.tool_outputs import Outputs
from chatops.toolkit.counting import count_work, shown_by
from chatops.wiring.rows import NO_TITLE, run_state
from chatops.wiring.stored import Storage

if TYPE_CHECKING:
    from chatops.domain.canonical import JsonValue
    from chatops.store.base import SearchHit, SessionInfo
    from chatops.store.importing import Imported
    from chatops.store.store import Store

CHARACTERS_AROUND = 40
"""Characters shown on each side of a search hit."""
MAX_HITS = 1_000
"""Search hits that are printed. A longer list would help nobody to find anything."""


def run(arguments: Namespace) -> int:
    """Run the chosen action."""
    actions = {
        "list": _list,
        "show": _show,
        "search": _search,
        "rename": _rename,
        "fork": _fork,
        "export": _export,
        "import": _import,
        "delete": _delete,
    }
    # The parser gives --store only to actions that read. They open the store without writing, also a damaged one; for
    # all others it has to be in order.
    only_reads = "store" in arguments
    if only_reads and arguments.store:
        if not Path(arguments.store).expanduser().is_file():
            raise ConfigError(f"There is no file {arguments.store}.", advice="--store names a session store to read.")
        # The workspaces of its sessions may be on another machine.
        arguments.all = True
    with open_stored(arguments, storage=Storage.READ if only_reads else Storage.NEEDED) as opened:
        return actions[arguments.action](opened, arguments)


def _list(opened: Stored, arguments: Namespace) -> int:
    stored = opened.store.sessions(workspace=None if arguments.all else str(opened.workspace), limit=ALL)
    listed = stored[: arguments.limit]
    if len(listed) < len(stored):
        screen().say(f"The newest {len(listed):,} of {len(stored):,} sessions. All of them: --limit {len(stored)}")
    states = [_unfinished_state(opened.store, info) for info in listed]
    has_states = any(states)
    header = ["ID", "CHANGED", "ROLE", "MESSAGES", *(["WORKSPACE"] if arguments.all else []), "TITLE"]
    header += ["STATE"] if has_states else []
    rows = [
        [
            info.id,
            when(info.updated_at),
            info.role,
            str(info.messages),
            *([info.workspace] if arguments.all else []),
            f"{_title(info)} [run: {run_state(info)}]" if info.run is not None else _title(info),
            *([state] if has_states else []),
        ]
        for info, state in zip(listed, states, strict=True)
    ]
    values = [{**fields_json(info), "state": state} for info, state in zip(listed, states, strict=True)]
    empty = "No sessions yet." if arguments.all else "No sessions here yet. Those of other folders: --all"
    return show_list(arguments, values, header, rows, empty=empty)


def _title(info: "SessionInfo") -> str:
    """Return the title, with a sign before that of a copy."""
    return f"{'↳ ' if info.forked_from else ''}{info.title or NO_TITLE}"


def _unfinished_state(store: "Store", info: "SessionInfo") -> str:
    """Return the resume summary of the session's turn, or who owns the session; empty if the turn is finished."""
    if not info.active_turn:
        return ""
    lease = store.lease(info.id)
    if lease is not None:
        return f"open in chatops pid {lease.holder.pid} on {lease.holder.host}"
    from chatops.runtime.descriptions import resume_summary  # slow to import, and most sessions have no such turn

    return resume_summary(store, info)


def _show(opened: Stored, arguments: Namespace) -> int:
    view = screen()
    info = find_session(opened.store, arguments.session)
    from chatops.store.export import to_markdown  # slow to import

    messages = opened.store.history(info.id)
    if arguments.output_format == "json":
        view.json({**fields_json(info), "message_list": [plain(message) for message in messages]})
        return 0
    view.answer(to_markdown(messages, title=info.title or info.id))
    if info.run is not None:
        view.say(f"This is a run of workflow {info.run.workflow}. To see its state: chatops workflow show {info.id}")
    if info.pending:
        view.say(f"{plural(info.pending, 'approval')} pending. To see: chatops approvals list")
    elif info.active_turn:
        from chatops.runtime.descriptions import stored_way_to_continue

        state, way = _unfinished_state(opened.store, info), stored_way_to_continue(opened.store, info.id)
        view.say(f"The last turn is not finished ({state}). To continue: {way}")
    return 0


def _search(opened: Stored, arguments: Namespace) -> int:
    """Print every message that contains the text once, and sessions whose title does if none of their messages do.

    As JSON, a message is printed for each copy that has it. The case is ignored. Finding nothing is not an error.
    """
    view = screen()
    wanted = arguments.text.casefold()
    if not wanted.strip():
        raise ConfigError("There is nothing to search for.", advice="chatops sessions search TEXT")
    workspace = None if arguments.all else str(opened.workspace)
    hits = opened.store.search(arguments.text, workspace=workspace, limit=MAX_HITS)
    if arguments.output_format == "json":
        values: list[JsonValue] = [
            {
                "session_id": hit.session.id,
                "title": hit.session.title,
                "message_id": hit.message_id or "",
                "text": hit.text,
            }
            for hit in hits
        ]
        view.json(values)
    elif hits:
        # Copies of a session share its messages. Hits come in order of the last use, so the first of equal ones counts.
        distinct: dict[str, SearchHit] = {}
        for hit in hits:
            distinct.setdefault(hit.message_id or hit.session.id, hit)
        rows = [
            (hit.session.id, _title(hit.session), excerpt(hit.text, wanted, around=CHARACTERS_AROUND))
            for hit in distinct.values()
        ]
        view.answer(table(("ID", "TITLE", "TEXT"), rows))
    else:
        view.say(f"Nothing found. {'' if arguments.all else 'In all folders: add --all.'}".rstrip())
    return 0


def _rename(opened: Stored, arguments: Namespace) -> int:
    info = find_session(opened.store, arguments.session)
    title = " ".join(arguments.title.split())
    if not title:
        raise ConfigError("The new title is empty.", advice="chatops sessions rename SESSION TITLE")
    opened.store.update_session(info.id, title=title)
    screen().say(f"Session {info.id} is now called {title}.")
    return 0


def _fork(opened: Stored, arguments: Namespace) -> int:
    info = find_session(opened.store, arguments.session)
    # The copy belongs to the workspace of the original, unless workers alone drive that: no user could continue it.
    copy = opened.store.fork_session(info.id, workspace=str(opened.workspace) if info.queue else "")
    view = screen()
    view.answer(copy.id)
    view.say(f"Forked from {info.id}; the rules of that session were not copied. Open it with: chatops -r {copy.id}")
    return 0


def _export(opened: Stored, arguments: Namespace) -> int:
    info = find_session(opened.store, arguments.session)
    from chatops.store.export import ExportFormat, export

    text = export(
        opened.store.history(info.id), info, to=ExportFormat(arguments.format), read_file=opened.store.files.read
    )
    view = screen()
    if arguments.output is None:
        view.answer(text)
        return 0
    path = Path(os.path.expanduser(arguments.output))
    write_new_private(path, text.encode("utf-8", "backslashreplace"))
    view.say(f"Written to {path}.")
    return 0


def _import(opened: Stored, arguments: Namespace) -> int:
    """Store the conversations of a file as sessions of this workspace, and print their ids."""
    # Slow to import.
    from chatops.config.registry import load_registry
    from chatops.store.importing import MAX_BYTES, ImportFormat, read_file

    path = Path(arguments.file).expanduser()
    try:
        if not path.is_file():
            raise ConfigError(f"{path} is not a file.", advice="Name the file to import.")
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError(f"{path} has more than {MAX_BYTES:,} bytes.", advice="Import it in parts.")
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.", advice="Name the file to import.") from error
    format = ImportFormat(arguments.format) if arguments.format else None
    # All work that is counted inside the first block is shown by it.
    with shown_by(screen().show_progress), count_work("importing", unit="session") as counter:
        conversations = read_file(data, format=format, source=str(path), workspace=str(opened.workspace))
        if not conversations:
            raise ConfigError(
                f"{path} has no conversation.", advice="chatops sessions import --help names the formats."
            )
        counter.expect(len(conversations))
        role = load_registry(path=opened.options.registry, paths=opened.paths, env=os.environ).registry.default_role
        for conversation in conversations:
            _store_imported(opened, conversation, role=role)
            counter.add()
    return 0


def _store_imported(opened: Stored, conversation: "Imported", *, role: str) -> None:
    """Store one conversation of a file as a session, and print its id."""
    view = screen()
    left_out = f", {conversation.skipped} left out" if conversation.skipped else ""
    try:
        stored = opened.store.create_session(
            workspace=str(opened.workspace),
            role=role,
            persona="",
            title=conversation.title,
            messages=conversation.messages,
        )
        session_id, what = stored.id, f"{stored.title}: {plural(stored.messages, 'message')}{left_out}"
    except AlreadyStoredError as error:
        session_id, what = error.session_id, f"{conversation.title or NO_TITLE}: imported before, so it was left out"
    # Also for a session that was there: its import may have been stopped before its files were kept.
    for name, content in conversation.files:
        if (file := opened.store.files.keep(session_id, name, content)).problem:
            view.say(f"{file}.")  # As text, it is its name and the problem.
    view.answer(session_id)
    view.say(f"{what}. Open it with: chatops -r {session_id}")


def _delete(opened: Stored, arguments: Namespace) -> int:
    info = find_session(opened.store, arguments.session)
    view = screen()
    lease = opened.store.lease(info.id)
    if lease is not None:
        who = f"pid {lease.holder.pid} on {lease.holder.host}"
        raise SessionBusyError(
            f"Session {info.id} is open in another chatops ({who}); what happens there could not be stored any more.",
            advice=f"Close it there, then: chatops sessions delete {info.id}",
        )
    if not arguments.yes:
        if unfinished := _unfinished_work(info):
            raise SessionBusyError(
                f"Session {info.id} {unfinished}.",
                advice=f"To delete it all the same: chatops sessions delete {info.id} --yes",
            )
        if not _confirm_delete(info):
            view.say("Not deleted. Without a question: add --yes.")
            return 1
    opened.store.delete_session(info.id)
    # The outputs of its tools are files of their own. None of its calls is open any more.
    Outputs(opened.paths.running).forget_others(info.id, keep=())
    view.say(f"Session {info.id} is deleted; its decisions stay in the audit log.")
    return 0


def _unfinished_work(info: "SessionInfo") -> str:
    """Return what deleting the session would cut off, as a predicate; empty if nothing."""
    if info.unfinished_run is not None:
        return f"is a run of workflow {info.unfinished_run.workflow} that is not over"
    return f"has an unfinished turn ({info.pending} pending)" if info.active_turn else ""


def _confirm_delete(info: "SessionInfo") -> bool:
    if not sys.stdin.isatty():
        return False
    count = plural(info.messages, "message")
    return confirm(f"Delete session {info.id} ({count}, {info.title})? Type yes:")
