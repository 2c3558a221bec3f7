"""``chatops acp``: the program that editors start as an agent."""

import os
import stat
from argparse import Namespace
from importlib.util import find_spec

from chatops.commands.application import with_app
from chatops.commands.workspace import too_broad
from chatops.config.extras import not_installed
from chatops.domain.errors import ConfigError


def run(arguments: Namespace) -> int:
    """Answer an editor until it goes. Exit code 0."""
    if find_spec("acp") is None:
        raise ConfigError(f"Editors cannot be answered: {not_installed('acp')}.")
    if not all(map(_is_pipe, (0, 1))):
        raise ConfigError(
            "chatops acp speaks a protocol with an editor, which starts it.",
            advice='Name it in the settings of the editor as an agent: command "chatops", arguments ["acp"].',
        )
    from chatops.acp import wire

    return with_app(arguments, lambda opened: wire.run(opened, too_broad=too_broad), via="acp", broken_ok=True)


def _is_pipe(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
