"""``chatops store``: copy sessions into the database of a team, give members levels, check a store of either kind."""

import os
from argparse import Namespace
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from chatops.commands.context import options
from chatops.config.paths import find_paths
from chatops.domain.errors import ConfigError, NotSavedError
from chatops.domain.tools import AccessLevel
from chatops.domain.wording import plural
from chatops.headless.screen import screen, table
from chatops.store.copying import Copied, copy_sessions
from chatops.store.health import check_rows, describe, findings
from chatops.toolkit.counting import shown_by
from chatops.wiring.doctor import as_checks, has_failed, report_lines
from chatops.wiring.stored import database_address, open_address, sqlite_path, start_logging

MAX_NAMED = 5
"""Most sessions that a sentence names."""


def run(arguments: Namespace) -> int:
    """Run the chosen action."""
    paths = find_paths(os.environ)
    paths.prepare()
    start_logging(paths.log)
    if arguments.action == "copy":
        return _copy(arguments.source, arguments.target, arguments.member)
    if arguments.action == "grant":
        return _grant(database_address(paths, options(arguments).registry), arguments.role, arguments.level)
    address = arguments.address or database_address(paths, options(arguments).registry)
    return _check(address, sqlite_path(address) if address else paths.store)


def _grant(address: str, role: str | None, level: str | None) -> int:
    """Give a member a level, or print all levels."""
    if not address:
        raise ConfigError(
            "The sessions are in a file of one user, which has no members.",
            advice='Name a database: "store": "postgresql://…" in the registry, or CHATOPS_STORE.',
        )
    if (role is None) != (level is None):
        raise ConfigError("A level is given to a role.", advice="chatops store grant ROLE --level operator")
    view = screen()
    with closing(open_address(address)) as rows:
        if role is None or level is None:
            view.answer(table(("ROLE", "LEVEL"), [(name, its.word) for name, its in sorted(rows.levels().items())]))
            return 0
        rows.grant(role, None if level == "none" else AccessLevel[level.upper()])
    state = "may read and decide nothing any more" if level == "none" else f"has level {level}"
    view.say(f"{role} {state}.")
    return 0


def _check(address: str, file: Path | None) -> int:
    """Print what is wrong with a store. Exit code 1 if something has to be mended."""
    if file is not None:
        checks = as_checks(findings(file, deep=True))
    else:
        with closing(open_address(address)) as rows:
            checks = as_checks([*describe(rows), *check_rows(rows)])
    screen().answer(report_lines(checks))
    return 1 if has_failed(checks) else 0


def _copy(source: str, target: str, member: str) -> int:
    """Copy what the target does not have yet. Exit code 1 if something could not be copied."""
    if not (source.startswith("sqlite://") and target.startswith(("postgresql://", "postgres://"))):
        raise ConfigError(
            "Sessions are copied from a file into a database only.",
            advice="chatops store copy sqlite:///FOLDER/chatops.db postgresql://host/database",
        )
    view = screen()
    with closing(open_address(source)) as file, closing(open_address(target)) as team:
        if member and team.level_of(member) is None:
            raise ConfigError(
                f"{member} has no level in the database, so nothing can belong to that role.",
                advice=f"First: chatops store grant {member} --level L",
            )
        try:
            with shown_by(view.show_progress):
                copied = copy_sessions(file, team, role=member)
        except NotSavedError as error:
            raise NotSavedError(
                f"The copy is not complete. {error}",
                advice=f"Give the same command again: it continues where it stopped. {error.advice}",
                reason=error.reason,
            ) from error
        for notice in (*file.notices, *team.notices):
            view.say(notice)
    view.answer(_copied_line(copied))
    for line in _copy_notes(copied):
        view.say(line)
    return 1 if copied.failed or copied.lost else 0


def _copied_line(copied: Copied) -> str:
    sessions = plural(len(copied.new), "session is", "sessions are")
    before = f" {plural(len(copied.same), 'was', 'were')} there before." if copied.same else ""
    rows = copied.rows
    counts = (
        f"{plural(rows['messages'], 'message')}, {plural(rows['turns'], 'turn')}, "
        f"{plural(rows['audit'], 'row of the log', 'rows of the log')}"
    )
    return (
        f"{sessions} copied, with {plural(copied.files, 'file')}.{before} "
        f"Read back and the same as in the file: {counts}."
    )


def _copy_notes(copied: Copied) -> list[str]:
    """Return what the user has to know beyond the counts, one sentence each."""
    # An empty id stands for the log outside of sessions.
    changed = [session for session in copied.differing if session]
    notes = [f"NOT COPIED  {session or 'the log outside of sessions'}: {why}" for session, why in copied.failed.items()]
    notes += [f"NOT COPIED  file {lost}" for lost in copied.lost]
    if changed:
        notes.append(
            f"Used since they were copied, here or there, and left as they are there: {_list_sessions(changed)}."
        )
    if len(changed) < len(copied.differing):
        notes.append("The log outside of sessions (trust, revoked rules) stays in the file: the database has its own.")
    if copied.open:
        notes.append(
            f"Open in a chatops now; what happens there from now on stays in the file: {_list_sessions(copied.open)}."
        )
    if copied.hidden:
        notes.append(
            f"{plural(copied.hidden, 'row')} held a key that chatops knows. It was replaced, and "
            "`chatops audit verify` reports that there if it was in the log."
        )
    notes.append(
        "In the copy no earlier approval counts: calls that wait, or were running, ask again. Remembered rules, what "
        "/undo takes back and contained copies are not copied. "
        'To use the database: "store" in the registry, or CHATOPS_STORE.'
    )
    return notes


def _list_sessions(sessions: Sequence[str]) -> str:
    return ", ".join(sessions[:MAX_NAMED]) + (
        f" and {len(sessions) - MAX_NAMED} more" if len(sessions) > MAX_NAMED else ""
    )
