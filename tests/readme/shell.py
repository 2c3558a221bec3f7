"""The README's console blocks, line by line in a shell."""

import subprocess
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
        """What the line printed on standard output and error."""
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


def follow(block: str, folder: Path) -> None:
    """Type each line of a block; what is printed has to be what the README shows."""
    shell = Shell(folder)
    known: dict[str, str] = {}
    try:
        for command in document.commands(block):
            line = command.line
            for name, value in known.items():
                line = line.replace(name, value)
            printed = shell.run(line)
            found = document.expected(command.shown, known).fullmatch(printed)
            assert found, f"$ {line}\nprinted\n{printed}\nand the README says\n" + "\n".join(command.shown)
            known |= found.groupdict()
    finally:
        shell.close()
