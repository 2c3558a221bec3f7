"""``chatops acp``: the agent that editors start."""

import sys
from argparse import Namespace
from importlib.util import find_spec

from chatops.commands.context import with_app
from chatops.commands.workspace import whole
from chatops.config.extras import not_installed
from chatops.domain.errors import ConfigError


def run(arguments: Namespace) -> int:
    """Answer an editor until it goes. Exit code 0."""
    if find_spec("acp") is None:
        raise ConfigError(f"Editors cannot be answered: {not_installed('acp')}.")
    if sys.stdin is None or sys.stdin.isatty():
        raise ConfigError(
            "chatops acp speaks a protocol with an editor, which starts it.", advice="docs/editors.md says how."
        )
    from chatops.acp import wire

    return with_app(arguments, lambda opened: wire.run(opened, is_whole=whole), via="acp", broken_ok=True)
