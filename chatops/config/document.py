"""A parsed configuration file: values with their positions, and errors that name file, line, column and key."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from pydantic_core import ErrorDetails

from chatops.config.locate import Located, MalformedFileError, Path, dotted, parse
from chatops.domain.errors import ConfigError

EXPECTED = {
    "model_type": "an object {…} has to stand here",
    "dict_type": "an object {…} has to stand here",
    "list_type": "a list […] has to stand here",
    "string_type": "text in double quotes has to stand here",
    "bool_type": "true or false has to stand here",
    "int_type": "a whole number has to stand here",
    "float_type": "a number has to stand here",
    "missing": "this key is missing",
    "too_short": "at least one entry is needed here",
}
"""Messages for pydantic's error types that describe the file instead of Python types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A file that could be parsed."""

    located: Located
    source: str
    """Name of the file in messages."""
    advice: str
    """Default advice for an error in the file."""

    def where(self, path: Path) -> str:
        """Return file, line, column and key of `path` as text."""
        line, column = self.located.place(path)
        return f"{self.source}, line {line}, column {column}{key_of(path)}"

    def error(self, path: Path, why: str, *, advice: str = "") -> ConfigError:
        """Return an error at `path`."""
        return ConfigError(f"{self.where(path)}: {why}.", advice=advice or self.advice)

    def invalid(self, detail: ErrorDetails, *, keys: Callable[[Path], Sequence[str]], prefix: Path = ()) -> ConfigError:
        """Convert an error that pydantic found in the value at `prefix`; `keys` returns the known keys there."""
        inner = tuple(part for part in detail["loc"] if part != "[key]")
        path = (*prefix, *inner)
        if detail["type"] == "extra_forbidden":
            return self.error(path, f"there is no such key here{nearest(str(path[-1]), keys(inner))}")
        message = EXPECTED.get(detail["type"]) or detail["msg"]
        return self.error(path, message[:1].lower() + message[1:])


def read_document(
    data: bytes, *, source: str, advice: str, most: int, syntax: Callable[[str], Located] = parse
) -> Document:
    """Parse `data`, which may have at most `most` bytes.

    Raises ConfigError naming `source`, line and column.
    """
    if len(data) > most:
        raise ConfigError(f"{source}: the file is larger than {most} bytes.", advice=advice)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line, column = before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1
        raise ConfigError(f"{source}, line {line}, column {column}: this is not UTF-8 text.", advice=advice) from None
    try:
        return Document(located=syntax(text), source=source, advice=advice)
    except MalformedFileError as error:
        line, column = error.place
        raise ConfigError(
            f"{source}, line {line}, column {column}{key_of(error.path)}: {error.why}.", advice=advice
        ) from None


def key_of(path: Path) -> str:
    """Return the part of a message that names a key; empty at the top level."""
    return f", key {dotted(path)}" if path else ""


def nearest(word: str, known: Sequence[str]) -> str:
    """Return the end of a sentence that suggests the most similar of `known`; empty if none is similar."""
    near = get_close_matches(word, known, n=1)
    return f"; {near[0]!r} may be meant" if near else ""
