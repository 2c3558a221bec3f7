"""Lines at the end of a program's output that say how it ended: written for the model, parsed again for the user.

The last lines always come from chatops, whatever the program prints (see `closed`).
"""

import re
from dataclasses import dataclass, replace

from chatops.domain.tools import KILLED

RUN_PROGRAMS = frozenset({"shell_exec", "python_exec"})
"""Tools whose results have these lines. Results of other tools may contain anything."""
LOST = "[the command killed the process that watched over it, so its exit code is not known]"

_CAUSE = re.compile(r"\[likely cause: (.*)\]")
_LINE = re.compile(
    r"\[(?:(?P<stopped>stopped after [\d.e+]+ s): the time limit[^\]]*"
    rf"|(?P<killed>{re.escape(KILLED)}), exit code \d+"
    r"|(?P<exit>exit code \d+(?: \([A-Z0-9+]+\))?)"
    r"|the command killed the process that watched over it, so its (?P<lost>exit code is not known)"
    r"|(?P<left>\d+ background process(?:es)?) (?:was|were) stopped when the command ended)\]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The end of a program in words for the UI.

    `how` is empty if it ended normally or that is unknown. `stopped` names processes that were stopped after it.
    """

    how: str = ""
    stopped: str = ""
    cause: str = ""
    """How the sandbox may have caused a failure, and which key of the registry changes that."""


def stopped_after(seconds: float) -> str:
    """Return the line for a reached time limit."""
    return f"[stopped after {seconds:g} s: the time limit; above is the output so far]"


def exited(code: int, *, signal: str = "") -> str:
    """Return the line for an exit code, as a shell counts; `signal` is the name of the signal that ended it, if any."""
    if signal == "SIGKILL":
        return f"[{KILLED}, exit code {code}]"
    return f"[exit code {code} ({signal})]" if signal else f"[exit code {code}]"


def left(count: int) -> str:
    """Return the line for processes that it left behind and that were stopped."""
    plural = "process was" if count == 1 else "processes were"
    return f"[{count} background {plural} stopped when the command ended]"


def caused(text: str) -> str:
    """Return the line that names the likely cause of a failure."""
    return f"[likely cause: {text}]"


def closed(output: str, *, how: str = "", stopped: str = "", cause: str = "") -> str:
    """Return the output with the lines about its end.

    If none of them says how the program ended, but the output itself ends with such a line, exit code 0 is added. So a
    line printed by the program is never taken for one of chatops.
    """
    own = output.rstrip("\n")
    last = own.rpartition("\n")[2].strip()
    if not how and (_LINE.fullmatch(last) or _CAUSE.fullmatch(last)):
        how = exited(0)
    return "\n".join(part for part in (own, how, stopped, cause) if part)


def ending_of(tool: str, content: str) -> Ending:
    """Parse the end of a program from a result; empty if there is none, or the tool runs no program."""
    if tool not in RUN_PROGRAMS:
        return Ending()
    cause = _CAUSE.fullmatch(content.rpartition("\n")[2])
    if cause is not None:
        ending = ending_of(tool, content.rpartition("\n")[0])
        return replace(ending, cause=cause[1]) if ending.how else Ending()
    *_, before, last = ("", *content.rsplit("\n", 2)[-2:])
    found = _LINE.fullmatch(last)
    if found is None:
        return Ending()
    if not found["left"]:
        return Ending(how=_how(found))
    earlier = _LINE.fullmatch(before)
    return Ending(how="" if earlier is None or earlier["left"] else _how(earlier), stopped=f"{found['left']} stopped")


def _how(found: re.Match[str]) -> str:
    return found["stopped"] or found["killed"] or found["exit"] or found["lost"]
