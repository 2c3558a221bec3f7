"""Console blocks of the README and docs/, line by line in a shell."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support import document
from tests.support.waiting import PATIENCE


class Shell:
    """One bash for a whole block, so that `$?` and variables last from line to line."""

    _END = "tour-line-ended"

    def __init__(self, folder: Path) -> None:
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, line: str) -> str:
        """Output of the line on stdout and stderr."""
        assert self._bash.stdin is not None and self._bash.stdout is not None
        # In a group of its own input: a command must not eat the lines after it.
        keep = f"status=$?; echo {self._END}; (exit $status)"
        self._bash.stdin.write(f"{{ {line}\n}} </dev/null\n{keep}\n")
        self._bash.stdin.flush()
        printed: list[str] = []
        for text in self._bash.stdout:
            if text.endswith(f"{self._END}\n"):
                return "".join([*printed, text.removesuffix(f"{self._END}\n")])
            printed.append(text)
        raise AssertionError(f"The shell ended in: {line}\n{''.join(printed)}")

    def close(self) -> None:
        """End the shell."""
        self._bash.communicate(timeout=PATIENCE)


def follow(
    block: str,
    folder: Path,
    *,
    page: Path | None = None,
    known: Mapping[str, str] | None = None,
    replaced: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Type each line of a block; what is printed has to be what the page shows.

    `known` are ids from an earlier block, and `replaced` texts of the page that stand for others here, such as the
    address of a server. Returns the ids.
    """
    shell = Shell(folder)
    ids, texts = dict(known or {}), dict(replaced or {})
    try:
        for command in document.commands(block, page=page):
            line = _with(command.line, texts | ids)
            shown = tuple(_with(one, texts) for one in command.shown)
            printed = shell.run(line)
            found = document.expected(shown, ids).fullmatch(printed)
            assert found, f"$ {line}\nprinted\n{printed}\nand the page says\n" + "\n".join(shown)
            ids |= found.groupdict()
    finally:
        shell.close()
    return ids


def _with(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(name, value)
    return text
