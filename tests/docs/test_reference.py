"""docs/configuration.md, keys.md and the man page say what the code says."""

import argparse
from collections.abc import Iterator

from chatops.commands.parser import build_parser
from chatops.config.entries import keys_of
from chatops.config.registry_read import RegistryFile
from tests.docs import keys, man
from tests.docs.reference import PAGE, page


def test_the_page_is_as_the_code_says() -> None:
    """After a change: ``python -m tests.docs.reference``."""
    assert PAGE.read_text() == page()


def test_every_key_of_the_registry_is_on_it() -> None:
    text = PAGE.read_text()
    for name in keys_of(RegistryFile):
        assert f"| `{name}` |" in text


def test_the_page_of_keys_is_as_the_tables_say() -> None:
    """After a change: ``python -m tests.docs.keys``."""
    assert keys.PAGE.read_text() == keys.page()


def test_the_man_page_is_as_the_parser_says() -> None:
    """After a change: ``python -m tests.docs.man``."""
    assert man.PAGE.read_text() == man.page()


def test_every_option_of_every_command_is_on_the_man_page() -> None:
    text = man.PAGE.read_text().replace("\\-", "-")
    missing = [flag for flag in _flags(build_parser()) if f"\\fB{flag}\\fR" not in text]
    assert not missing


def _flags(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _flags(command)
