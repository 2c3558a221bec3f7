"""YAML with positions, limited to what JSON can express: no tags, anchors, aliases or second documents.

Only ``true``, ``false``, ``null`` and JSON's numbers are not text, so ``no`` and ``1e3s`` stay what was written.
Aliases are refused because a few of them can expand to gigabytes, tags because they name code.
"""

import re
from collections.abc import Iterator

import yaml

from chatops.config.document import MAX_DEPTH, Json, Located, MalformedFileError, Path, Place, place_at

_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None, "~": None, "": None}
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,39})")
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]{0,39})(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?")

_PLAIN_MESSAGES = (
    ("expected <block end>", "the indentation does not match the lines above"),
    ("sequence entries are not allowed", "a list begins on a line of its own, or is written [a, b]"),
    ("mapping values are not allowed", "a key is not allowed here: it is in the wrong column, or a text "
     "with ': ' in it lacks quotes"),
    ("found character '\\t'", "a tab is not allowed here; YAML is indented with spaces"),
    ("found unknown escape character", "in double quotes a backslash begins an escape; put a pattern in single quotes"),
    ("found unexpected end of stream", "the file ends inside quotes that were opened before"),
)  # fmt: skip
"""Start of a message of the YAML parser, and a plainer message for users."""


def parse_yaml(text: str) -> Located:
    """Parse YAML. Raises MalformedFileError."""
    reader = _YamlReader(text)
    try:
        value = reader.document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        why = error.problem or error.context or "this is not YAML"
        why = next((plain for begins, plain in _PLAIN_MESSAGES if why.startswith(begins)), why)
        raise MalformedFileError(why, place=(1, 1) if mark is None else (mark.line + 1, mark.column + 1)) from None
    except yaml.reader.ReaderError as error:
        raise MalformedFileError(
            "this character is not allowed in YAML", place=place_at(text, int(error.position))
        ) from None
    return Located(value=value, places=reader.places)


class _YamlReader:
    """One pass over the events of a file that records positions."""

    def __init__(self, text: str) -> None:
        self.places: dict[Path, Place] = {}
        self._text = text
        self._events: Iterator[yaml.Event] = iter(())

    def document(self) -> Json:
        self._events = (event for event in yaml.parse(self._text, Loader=yaml.SafeLoader))
        event = self._next()
        while isinstance(event, yaml.StreamStartEvent | yaml.DocumentStartEvent):
            event = self._next()
        if isinstance(event, yaml.StreamEndEvent):
            raise MalformedFileError("the file is empty", place=(1, 1))
        value = self._value(event, ())
        end = self._next()
        while not isinstance(end, yaml.StreamEndEvent):
            if isinstance(end, yaml.DocumentStartEvent):
                raise MalformedFileError("a second document begins here, and only one is read", place=_place(end))
            end = self._next()
        return value

    def _next(self) -> yaml.Event:
        return next(self._events)

    def _value(self, event: yaml.Event, path: Path) -> Json:
        self.places.setdefault(path, _place(event))
        if len(path) > MAX_DEPTH:
            raise MalformedFileError("it is nested too deeply", place=_place(event), path=path)
        if isinstance(event, yaml.AliasEvent):
            raise MalformedFileError(
                "aliases (*name) are not supported; write the value out", place=_place(event), path=path
            )
        assert isinstance(event, yaml.NodeEvent)
        if event.anchor is not None:
            raise MalformedFileError("anchors (&name) are not supported; remove it", place=_place(event), path=path)
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag is not None:
            raise MalformedFileError("tags (!name) are not supported; remove it", place=_place(event), path=path)
        match event:
            case yaml.MappingStartEvent():
                return self._mapping(path)
            case yaml.SequenceStartEvent():
                return self._sequence(path)
            case yaml.ScalarEvent():
                return _scalar(event, path)
            case _:
                raise MalformedFileError("expected a value", place=_place(event), path=path)

    def _mapping(self, path: Path) -> Json:
        members: dict[str, Json] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key = self._key(event, path)
            if key in members:
                raise MalformedFileError(f"the key {key!r} is given twice", place=_place(event), path=(*path, key))
            self.places[(*path, key)] = _place(event)
            members[key] = self._value(self._next(), (*path, key))
        return members

    def _key(self, event: yaml.Event, path: Path) -> str:
        if not isinstance(event, yaml.ScalarEvent) or event.anchor is not None or event.tag is not None:
            raise MalformedFileError("a key has to be plain text", place=_place(event), path=path)
        if event.style is None and event.value == "<<":
            raise MalformedFileError(
                "merge keys (<<) are not supported; write the keys out", place=_place(event), path=path
            )
        return _text_of(event, path)

    def _sequence(self, path: Path) -> Json:
        elements: list[Json] = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            elements.append(self._value(event, (*path, len(elements))))
        return elements


def _scalar(event: yaml.ScalarEvent, path: Path) -> Json:
    text = _text_of(event, path)
    if event.style is not None:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text):
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise MalformedFileError("this number is too large", place=_place(event), path=path)
        return value
    return text


def _text_of(event: yaml.ScalarEvent, path: Path) -> str:
    text = str(event.value)
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise MalformedFileError("this text holds half a surrogate pair", place=_place(event), path=path)
    return text


def _place(event: yaml.Event) -> Place:
    mark = event.start_mark
    return (1, 1) if mark is None else (mark.line + 1, mark.column + 1)
