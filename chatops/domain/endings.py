"""How a program ended that a tool ran: lines behind its output, written for the model, read again for a person.

The last lines are ours whatever the program puts out, see `closed`.
"""

import re
from dataclasses import dataclass, replace

from chatops.domain.tools import KILLED

RUN_PROGRAMS = frozenset({"shell_exec", "python_exec"})
"""Tools whose results end like this; those of others may hold anything."""
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
    """In words for a card: `how` it ended (empty: well, or not known), and what was stopped behind it."""

    how: str = ""
    stopped: str = ""
    cause: str = ""
    """What the sandbox has to do with a failure, and which key of the registry changes that."""


def stopped_after(seconds: float) -> str:
    """The time limit was reached."""
    return f"[stopped after {seconds:g} s: the time limit; above is the output so far]"


def exited(code: int, *, signal: str = "") -> str:
    """It ended with this code, as a shell counts; `signal` is the name of what ended it, if anything did."""
    if signal == "SIGKILL":
        return f"[{KILLED}, exit code {code}]"
    return f"[exit code {code} ({signal})]" if signal else f"[exit code {code}]"


def left(count: int) -> str:
    """Processes that it left behind were stopped."""
    plural = "process was" if count == 1 else "processes were"
    return f"[{count} background {plural} stopped when the command ended]"


def caused(text: str) -> str:
    """Name the likely cause of a failure."""
    return f"[likely cause: {text}]"


def closed(output: str, *, how: str = "", stopped: str = "", cause: str = "") -> str:
    """The output with what is to be said of its end. If that does not say how the program ended, and its output ends as
    if it did, code 0 is said: nobody is to take a program's words for ours."""
    own = output.rstrip("\n")
    last = own.rpartition("\n")[2].strip()
    if not how and (_LINE.fullmatch(last) or _CAUSE.fullmatch(last)):
        how = exited(0)
    return "\n".join(part for part in (own, how, stopped, cause) if part)


def ending_of(tool: str, content: str) -> Ending:
    """What a result says of the end of its program; nothing if its last line is none of these, or it ran none."""
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
