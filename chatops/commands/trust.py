"""``chatops trust``: show what a folder brings, and trust exactly that.

On a terminal the command asks. In a pipe it only prints, unless ``--digest`` names what was printed before: then
nothing can be trusted that has not been shown.
"""

import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from chatops.commands.context import confirm, options
from chatops.config.own_tools import OwnToolsTrust
from chatops.config.paths import Paths, find_paths
from chatops.config.registry import load_registry
from chatops.config.trust import (
    SHOWN_DIGEST,
    TrustAnswer,
    TrustQuestion,
    WorkspaceTrust,
    question_notices,
    revoke_trust,
)
from chatops.config.workspace_files import Item
from chatops.domain.errors import ChatopsError, ConfigError
from chatops.headless.screen import Screen, screen, table
from chatops.wiring.stored import Options, Storage, make_store, workspace_of

_CONFIRMATION = "trust"
"""Has to be typed whole, so that no stray key trusts anything."""
_MIN_DIGITS = 8
"""Hex digits of a digest, at least: 32 bits, so that hardly two contents begin alike by chance."""


def run(arguments: Namespace) -> int:
    """Show, ask, store. Exit code 0, or 1 if something is not trusted afterwards that could be."""
    chosen = options(arguments)
    if arguments.folder is not None and chosen.workspace is not None:
        raise ConfigError("Two folders are named.", advice="Name it once: chatops trust DIR")
    folder = Path(arguments.folder).expanduser() if arguments.folder is not None else chosen.workspace
    workspace, paths, view = workspace_of(folder), find_paths(os.environ), screen()
    paths.prepare()
    if arguments.revoke:
        return _revoke(workspace, chosen, paths)
    trust = _trust_in(workspace, chosen, paths)
    question = trust.question
    if not question.listed:
        view.say(f"{workspace} brings nothing that chatops would use.")
        return 0
    show_question(question, view)
    if arguments.digest is not None:
        check_digest(arguments.digest, question, again="chatops trust")
    elif not question.is_answerable:
        view.say("There is nothing to decide.")
        return 0
    elif not confirm_trust(question, view, again=f"chatops trust {shlex.quote(str(workspace))}"):
        return 1
    _log_answer(chosen, paths, question.path, TrustAnswer.TRUSTED, [row.item for row in question.usable])
    # Sentences about items that have changed since they were shown, which are not trusted.
    changed = trust.trust(question)
    for sentence in changed:
        view.say(sentence)
    view.say("Trusted. It counts from the next message on; chatops trust --revoke takes it back.")
    return 1 if changed else 0


def _trust_in(workspace: Path, chosen: Options, paths: Paths) -> WorkspaceTrust:
    """Return the trust in what a folder brings: in the user's own tools, if it is their folder."""
    loaded = load_registry(path=chosen.registry, paths=paths, env=os.environ)
    if _is_of_own_tools(workspace, paths):
        return OwnToolsTrust(paths.tools, folder=paths.trust)
    return WorkspaceTrust(workspace, folder=paths.trust, loaded=loaded)


def _is_of_own_tools(workspace: Path, paths: Paths) -> bool:
    return workspace == paths.tools.resolve()


def _revoke(workspace: Path, chosen: Options, paths: Paths) -> int:
    trusted = paths.tools if _is_of_own_tools(workspace, paths) else workspace
    was_trusted = revoke_trust(trusted, folder=paths.trust)
    if was_trusted:
        _log_answer(chosen, paths, str(trusted), TrustAnswer.REVOKED)
    screen().say(f"Nothing in {workspace} {'is trusted any more' if was_trusted else 'was trusted'}.")
    return 0


def _log_answer(chosen: Options, paths: Paths, folder: str, answer: TrustAnswer, items: Sequence[Item] = ()) -> None:
    with closing(make_store(chosen.store, paths, Storage.NEEDED)) as store:
        store.surface = chosen.via
        store.log_trust(folder, answer, items)


def show_question(question: TrustQuestion, view: Screen) -> None:
    """Print each item with state, size and digest, then the notices."""
    rows = [
        (
            listed.state.value,
            listed.item.kind.value,
            f"{listed.item.size:,}",
            listed.item.digest[:SHOWN_DIGEST] or "-",
            listed.item.path,
        )
        for listed in question.listed
    ]
    view.exactly(table(("STATE", "KIND", "BYTES", "SHA-256", "FILE"), rows))
    view.answer("\n".join(("", *question_notices(question))))


def check_digest(digest: str, question: TrustQuestion, *, again: str) -> None:
    """Raise ChatopsError unless `digest` is the beginning of the digest of what the command `again` has printed."""
    if len(digest) < _MIN_DIGITS:
        raise ConfigError(f"--digest needs {_MIN_DIGITS} digits or more.", advice=f"{again} prints it.")
    if not question.digest.startswith(digest.lower()):
        raise ChatopsError(
            "Nothing was trusted: the digest is not that of what is shown now.",
            advice=f"Look at it, then: {again} --digest {question.digest[:SHOWN_DIGEST]}",
        )


def confirm_trust(question: TrustQuestion, view: Screen, *, again: str) -> bool:
    """Ask on a terminal. Without one, say how to answer with the command `again`; that is a no."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        view.say(f"Nothing was trusted. To trust this: {again} --digest {question.digest[:SHOWN_DIGEST]}")
        return False
    if confirm(f"Type {_CONFIRMATION} to trust this. Anything else leaves it as it is.", word=_CONFIRMATION):
        return True
    view.say("Nothing was trusted.")
    return False
