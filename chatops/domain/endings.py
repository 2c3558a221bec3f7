"""The end of a program: a value, and the sentences made from it for the model and for the user."""

from enum import StrEnum

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.wording import plural

KILLED = "killed (out of memory?)"
"""Text for a program that ended with a SIGKILL not sent by chatops: usually the kernel was out of memory."""


class EndedBy(StrEnum):
    """Cause of a program's end."""

    EXIT = "exit"
    """The program itself, or a signal."""
    TIME_LIMIT = "time_limit"
    UNKNOWN = "unknown"
    """The command killed the process that watched over it, so its exit code is not known."""


@frozen_dataclass
class Ending:
    """The end of a program that a call ran."""

    by: EndedBy = EndedBy.EXIT
    exit_code: int = 0
    """As a shell counts: 128 and more for a signal. Only for EXIT."""
    signal: str = ""
    """Name of the signal that ended it, if any."""
    seconds: float = 0.0
    """The time limit that it reached."""
    stopped: int = 0
    """Number of background processes that were stopped after it."""
    pipeline: tuple[str, ...] = ()
    """Names of the programs of a pipeline, in order; an unknown name is empty. ``()``: the command is no pipeline."""
    not_found: tuple[str, ...] = ()
    """Programs of the pipeline that the shell did not find."""
    cause: str = ""
    """Likely cause of a failure in the sandbox, with the registry key that would remove it."""

    @property
    def succeeded(self) -> bool:
        """True if it ended with exit code 0."""
        return self.by is EndedBy.EXIT and self.exit_code == 0

    @property
    def in_words(self) -> str:
        """The end in words for the user; empty for exit code 0."""
        match self.by:
            case EndedBy.TIME_LIMIT:
                return f"stopped after {self.seconds:g} s"
            case EndedBy.UNKNOWN:
                return "exit code is not known"
            case _ if self.succeeded:
                return ""
            case _ if self.signal == "SIGKILL":
                return KILLED
            case _:
                return f"exit code {self.exit_code}" + (f" ({self.signal})" if self.signal else "")

    @property
    def further_words(self) -> str:
        """Further words for the user: whose exit code it is, and what was stopped after it."""
        parts = [f"{name} not found" for name in self.not_found]
        if self.pipeline and self.by is EndedBy.EXIT:
            parts.append(f"exit code of {self.last_program}")
        if self.stopped:
            parts.append(f"{plural(self.stopped, 'background process', 'background processes')} stopped")
        return ", ".join(parts)

    @property
    def last_program(self) -> str:
        """The last program of the pipeline, by name if it is known."""
        return self.pipeline[-1] or "the last program"


def exit_of(code: int) -> Ending:
    """Return the ending with this exit code, negative or above 128 for a signal."""
    # Loaded here, because commands that only read the store need no signals.
    from signal import Signals

    number = -code if code < 0 else code - 128 if code > 128 else 0
    try:
        name = Signals(number).name if number else ""
    except ValueError:
        name = ""
    return Ending(exit_code=code if code >= 0 else 128 - code, signal=name)


_ENDING_LINE_BEGINS = (
    *("[exit code ", "[stopped after ", "[killed", "[the command killed", "[not found: ", "[likely cause: "),
    *(f"[{digit}" for digit in range(10)),
)
"""Beginnings of the lines about an end; the digits are those of ``[3 background processes …``."""
_NORMAL_END = "[exit code 0]"
"""Added after a normal end, if the last line of the output could be taken for a line about an end."""


def with_ending(output: str, ending: Ending) -> str:
    """Return the output, followed by lines that tell the model how the program ended.

    A normal end adds nothing, unless the output itself ends with a line that a model could take for one of these.
    """
    output = output.rstrip("\n")
    first_line = _first_line(ending)
    if not first_line and output.rpartition("\n")[2].strip().startswith(_ENDING_LINE_BEGINS):
        first_line = _NORMAL_END
    return "\n".join(part for part in (output, first_line, *_further_lines(ending)) if part)


def without_ending(text: str, ending: Ending) -> str:
    """Return the output that `with_ending` made `text` from."""
    for line in reversed((_first_line(ending) or _NORMAL_END, *_further_lines(ending))):
        if line:
            text = text.removesuffix(line).rstrip("\n")
    return text


def _first_line(ending: Ending) -> str:
    match ending.by:
        case EndedBy.TIME_LIMIT:
            return f"[stopped after {ending.seconds:g} s: the time limit; above is the output so far]"
        case EndedBy.UNKNOWN:
            return "[the command killed the process that watched over it, so its exit code is not known]"
        case _ if ending.pipeline:
            code = f"exit code {ending.exit_code}" + (f" ({ending.signal})" if ending.signal else "")
            return f"[{code}; of the pipeline only {ending.last_program} counts in it]"
        case _ if ending.succeeded:
            return ""
        case _ if ending.signal == "SIGKILL":
            return f"[{KILLED}, exit code {ending.exit_code}]"
        case _:
            return f"[{ending.in_words}]"


def _further_lines(ending: Ending) -> tuple[str, ...]:
    missing = f"[not found: {', '.join(ending.not_found)}]" if ending.not_found else ""
    verb = "process was" if ending.stopped == 1 else "processes were"
    stopped = f"[{ending.stopped} background {verb} stopped when the command ended]" if ending.stopped else ""
    return missing, stopped, f"[likely cause: {ending.cause}]" if ending.cause else ""
