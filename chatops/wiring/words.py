"""Sentences that the commands and the chat share."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chatops.domain.errors import ConfigError
from chatops.domain.wording import plural
from chatops.headless.screen import when

if TYPE_CHECKING:
    from chatops.store.base import RuleRow, SessionInfo

NO_TITLE = "(no title)"
TO_REVIEW = "awaiting_review"
"""`kind` of the phase of a run that waits for a review."""


def unknown(kind: str, name: str, known: Sequence[str]) -> ConfigError:
    """Return the error for an unknown name, with the known ones, nearest first."""
    from difflib import get_close_matches  # only an error needs it

    near = get_close_matches(name, known, n=3, cutoff=0.4)
    ordered = [*near, *(one for one in known if one not in near)]
    listing = ", ".join(ordered) if ordered else "none"
    return ConfigError(f"There is no {kind} {name!r}.", advice=f"Known: {listing}.")


def run_state(info: "SessionInfo") -> str:
    """Return the state of a run in a few words; empty for a chat."""
    run = info.run
    if run is None or run.result:
        return run.result if run is not None else ""
    if info.pending:
        return f"{run.step}: {plural(info.pending, 'call')} to approve"
    return f"{run.step}: {'to review' if run.phase == TO_REVIEW else 'not finished'}"


def describe_rule(row: "RuleRow") -> tuple[str, str, str]:
    """Return a remembered rule in three lines: its pattern, where it answers, and when it was made and used."""
    from chatops.config.paths import path_of
    from chatops.policy.patterns import show_rule
    from chatops.policy.remembered import scope_words

    rule = row.rule
    where = f"{scope_words(rule.scope, rule.role)}{f' ({path_of(rule.folder)})' if rule.folder else ''}"
    used = "not used yet"
    if row.used_at is not None:
        used = f"used {'once' if row.uses == 1 else f'{row.uses} times'}, last {when(row.used_at)}"
    return show_rule(rule.tool, rule.pattern), where, f"made {when(row.made_at)} with call {rule.source_call}; {used}"
