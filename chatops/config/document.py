"""Configuration files with positions: line and column of each value and key, and errors that name them.

Accepts RFC 8259 JSON, plus comments from ``//`` to the end of the line wherever white space is allowed. A key that
occurs twice in one object is an error, because parsers disagree on which one counts. Lines and columns count from 1;
columns count characters.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import field
from difflib import get_close_matches
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]

from chatops.domain.errors import ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
"""A parsed value."""

Place = tuple[int, int]
"""Line and column."""

Path = tuple[str | int, ...]
"""Keys and indexes from the top level down to a value."""

MAX_DEPTH = 64
"""Levels of objects and lists below each other. Far more would end the recursion with an error of Python."""
_MAX_DIGITS = 40
"""Characters of a number. The conversion of one takes time that grows with their square."""
_INDENT = "  "

_SPACE = re.compile(r"(?:[ \t\n\r]+|//[^\n\r]*)*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_LITERALS: dict[str, bool | None] = {"true": True, "false": False, "null": None}


class MalformedFileError(Exception):
    """The text is not valid JSON or YAML; says why and where."""

    def __init__(self, why: str, *, place: Place, path: Path = ()) -> None:
        super().__init__(why)
        self.why = why
        self.place = place
        self.path = path


@frozen_dataclass
class Located:
    """A parsed value and the positions of its parts: the key of a member, the value of an element."""

    value: Json
    places: dict[Path, Place] = field(repr=False)
    spans: dict[Path, tuple[int, int]] = field(default_factory=dict, repr=False)
    """Start and end of each value in the text, in characters. Only `parse` fills it."""

    def place(self, path: Path) -> Place:
        """Return the position of `path`, or of its nearest ancestor that exists."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, (1, 1))


def parse(text: str) -> Located:
    """Parse JSON. Raises MalformedFileError."""
    reader = _JsonReader(text)
    value = reader.document()
    return Located(value=value, places=reader.places, spans=reader.spans)


def with_value(text: str, path: tuple[str, ...], value: Json) -> str:
    """Return `text` with `value` at `path`. Missing objects on the way are added; comments and layout stay.

    The parents in `path` must be objects, which the caller checks. Raises MalformedFileError if `text` is not JSON.
    """
    spans = parse(text).spans
    newline = "\r\n" if "\r\n" in text else "\n"
    if path in spans:
        start, end = spans[path]
        return text[:start] + _indent(value, by=len(path), newline=newline) + text[end:]
    parent, key = path[:-1], path[-1]
    if parent not in spans:
        return with_value(text, parent, {key: value})
    start, _ = spans[parent]
    name = json.dumps(key, ensure_ascii=False)
    member = f"{newline}{_INDENT * len(path)}{name}: {_indent(value, by=len(path), newline=newline)}"
    before, after = text[: start + 1], text[start + 1 :]
    has_members = any(other[:-1] == parent for other in spans if other)
    if has_members:
        return f"{before}{member},{'' if after[:1].isspace() else ' '}{after}"
    return f"{before}{member}{newline}{_INDENT * len(parent)}{after}"


def _indent(value: Json, *, by: int, newline: str) -> str:
    return json.dumps(value, indent=_INDENT, ensure_ascii=False).replace("\n", newline + _INDENT * by)


def dotted_path(path: Path) -> str:
    """Return a path in its usual notation: ``roles.coder.rules[0].verdict``."""
    out = ""
    for part in path:
        if isinstance(part, int):
            out += f"[{part}]"
        else:
            out += f".{part}" if out else part
    return out


@frozen_dataclass
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
        # What a Python program has written has no places.
        place = f", line {line}, column {column}" if self.located.places else ""
        return f"{self.source}{place}{key_clause(path)}"

    def error(self, path: Path, why: str, *, advice: str = "") -> ConfigError:
        """Return an error at `path`."""
        return ConfigError(f"{self.where(path)}: {why}.", advice=advice or self.advice)


def read_document(
    data: bytes, *, source: str, advice: str, most: int, syntax: Callable[[str], Located] = parse
) -> Document:
    """Parse `data`, which may have at most `most` bytes. Raises ConfigError naming `source`, line and column."""
    if len(data) > most:
        raise ConfigError(f"{source}: the file is larger than {most} bytes.", advice=advice)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode()
        line, column = place_at(before, len(before))
        raise ConfigError(f"{source}, line {line}, column {column}: this is not UTF-8 text.", advice=advice) from None
    try:
        return Document(located=syntax(text), source=source, advice=advice)
    except MalformedFileError as error:
        line, column = error.place
        raise ConfigError(
            f"{source}, line {line}, column {column}{key_clause(error.path)}: {error.why}.", advice=advice
        ) from None


def place_at(text: str, index: int) -> Place:
    """Return the line and column of a character."""
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)


def key_clause(path: Path) -> str:
    """Return the part of a message that names the key at `path`; empty at the top level."""
    return f", key {dotted_path(path)}" if path else ""


def suggestion(word: str, known: Sequence[str]) -> str:
    """Return the end of a sentence that suggests the most similar of `known`; empty if none is similar."""
    near = get_close_matches(word, known, n=1)
    return f"; {near[0]!r} may be meant" if near else ""


class _JsonReader:
    """One pass over the text that records positions."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.index = 0
        self.places: dict[Path, Place] = {}
        self.spans: dict[Path, tuple[int, int]] = {}
        self._line = 1
        self._line_start = 0
        self._counted_to = 0

    def document(self) -> Json:
        self._skip_space()
        value = self._value(())
        self._skip_space()
        if self.index != len(self.text):
            raise self._error("there is more text after the end of the JSON value", ())
        return value

    def _value(self, path: Path) -> Json:
        start = self.index
        value = self._read_value(path)
        self.spans[path] = (start, self.index)
        return value

    def _read_value(self, path: Path) -> Json:
        self.places.setdefault(path, self._place(self.index))
        if len(path) > MAX_DEPTH:
            raise self._error("it is nested too deeply", path)
        char = self.text[self.index : self.index + 1]
        if char == "{":
            return self._object(path)
        if char == "[":
            return self._array(path)
        if char == '"':
            return self._string(path)
        for word, value in _LITERALS.items():
            if self.text.startswith(word, self.index):
                self.index += len(word)
                return value
        return self._number(path)

    def _object(self, path: Path) -> Json:
        members: dict[str, Json] = {}
        self.index += 1
        self._skip_space()
        if self._skip_if("}"):
            return members
        while True:
            if self.text[self.index : self.index + 1] != '"':
                raise self._error("expected a double-quoted key", path)
            place = self._place(self.index)
            key = self._string(path)
            if key in members:
                raise MalformedFileError(f"the key {key!r} is given twice", place=place, path=(*path, key))
            self.places[(*path, key)] = place
            self._skip_space()
            if not self._skip_if(":"):
                raise self._error("expected a colon", (*path, key))
            self._skip_space()
            members[key] = self._value((*path, key))
            self._skip_space()
            if self._skip_if("}"):
                return members
            if not self._skip_if(","):
                raise self._error("expected a comma or the closing }", (*path, key))
            self._skip_space()

    def _array(self, path: Path) -> Json:
        elements: list[Json] = []
        self.index += 1
        self._skip_space()
        if self._skip_if("]"):
            return elements
        while True:
            elements.append(self._value((*path, len(elements))))
            self._skip_space()
            if self._skip_if("]"):
                return elements
            if not self._skip_if(","):
                raise self._error("expected a comma or the closing ]", path)
            self._skip_space()

    def _string(self, path: Path) -> str:
        try:
            value, self.index = scanstring(self.text, self.index + 1, True)
        except JSONDecodeError as error:
            raise MalformedFileError(
                f"this string is not valid ({error.msg.lower().removesuffix(' at')})",
                place=self._place(min(error.pos, len(self.text))),
                path=path,
            ) from None
        text = str(value)
        if any("\ud800" <= char <= "\udfff" for char in text):
            raise self._error("this string holds half a surrogate pair", path)
        return text

    def _number(self, path: Path) -> Json:
        number = _NUMBER.match(self.text, self.index)
        if number is None:
            missing = "the text ends where a value is expected" if self.index >= len(self.text) else "expected a value"
            raise self._error(missing, path)
        if len(number[0]) > _MAX_DIGITS:
            raise self._error("this number is too long", path)
        self.index = number.end()
        if number[1] is None and number[2] is None:
            return int(number[0])
        value = float(number[0])
        if value in (float("inf"), float("-inf")):
            raise self._error("this number is too large", path)
        return value

    def _skip_if(self, char: str) -> bool:
        if self.text[self.index : self.index + 1] != char:
            return False
        self.index += 1
        return True

    def _skip_space(self) -> None:
        if space := _SPACE.match(self.text, self.index):
            self.index = space.end()

    def _place(self, index: int) -> Place:
        # Except for errors, positions are requested in rising order, so each line is counted once.
        if index < self._counted_to:
            return place_at(self.text, index)
        self._line += self.text.count("\n", self._counted_to, index)
        if (newline := self.text.rfind("\n", self._counted_to, index)) >= 0:
            self._line_start = newline + 1
        self._counted_to = index
        return self._line, index - self._line_start + 1

    def _error(self, why: str, path: Path) -> MalformedFileError:
        return MalformedFileError(why, place=self._place(self.index), path=path)
