"""Calls as JSON objects between tags: one, several in a row, or a list of them.

Only an object that is a call and nothing more is one. Data that happens to have a name, the schema of a tool, a result,
and a message of another role are not calls.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from chatops.dialects.formats.base import (
    CLOSER,
    Call,
    CallBlock,
    FoundCall,
    OfferedTools,
    Opening,
    UnusableCall,
    as_unclosed,
    closer_after,
    closer_may_come,
    cut_off_call,
    skip_space,
    unknown_tool_call,
    unreadable_call,
    with_repair,
)
from chatops.dialects.json_reader import JsonRead, read_value, unwrap
from chatops.dialects.reading import DiagnosticKind, UnreadableValueError
from chatops.domain.canonical import JsonValue
from chatops.domain.frozen_dataclass import frozen_dataclass

NAME_KEYS = ("name", "tool_name", "tool", "function_name", "action", "function", "recipient_name")
ARGUMENT_KEYS = (
    *("arguments", "parameters", "args", "input", "params", "kwargs"),
    *("tool_input", "tool_args", "action_input", "function_args", "tool_parameters"),
)
_EXTRA_KEYS = frozenset({"id", "type", "index", "tool_call_id", "call_id"})
"""Keys that a call may have besides its name and arguments."""
_EXTRA_KEYS_OF_LIST = frozenset({"role", "content", "refusal", "id", "type", "tool_calls", "function_call", "thought"})
"""Keys of a message that holds a list of calls."""
_DROPPED_ENTRIES = "entries that are not calls were left out"
_KEY_IS_NAME = "the key of the object was read as the name of the tool"
_SCHEMA_GIVEN = "has its own schema instead of its arguments"

NO_CALL = 'holds no call: an object with "name" and "arguments" is needed'
"""Error for a value that was announced as a call."""
NO_CLOSER = "the closing tag is missing"
IsClosed = Callable[[JsonValue], bool]
"""Function that returns True if the model itself closed a part of a value."""
_FENCE_OPENS = re.compile(r"\s*+(?:`{3,}|~{3,})[ \t]*[\w-]{0,20}\s*")
_FENCE_ENDS = re.compile(r"\s*(?:`{3,}|~{3,})")
_NEXT_OBJECT = re.compile(r"\{|\[\s*\{")
_BETWEEN = re.compile(r"[\s,;]*+")
_OPEN_ENDED = frozenset(
    {"commandr_action", "functools", "gigachat3", "gigachat31", "granite20b_fc", "granite3", "llama3_python_tag"}
    | {"llama4_pythonic", "mistral_json", "mistral_v11"}
)
"""Formats whose calls end where their JSON or Python ends: they have no closing tag."""
_KEYED_FORMATS = frozenset({"apertus"})
"""Formats in which `{NAME: {arguments}}` is a call."""
_BROKEN_NAME = re.compile(r"""[\[{\s]*["']?(?:name|tool_name|tool)["']?\s*:\s*["']([^"'\n]{1,80})["']""")


def all_closed(_value: JsonValue) -> bool:
    """Return True: for values whose brackets were all written."""
    return True


@frozen_dataclass(kw_only=False)
class CallBuilder:
    """Builder of calls from the values of one block, which is from `start` to `end` in the text."""

    offered: OfferedTools
    start: int
    end: int
    repairs: tuple[str, ...] = ()
    """Those made to read the values."""
    closed: IsClosed = all_closed

    def items(self, value: JsonValue, *, keyed: bool = False) -> list[FoundCall]:
        """Return the calls in a value that a marker announced as calls; errors are included as unusable calls.

        With `keyed`, an object `{NAME: {arguments}}` is a call.
        """
        entries = list(self._calls_in(value, keyed=keyed))
        calls = [entry for entry in entries if entry is not None]
        if not calls:
            return [self._unusable(DiagnosticKind.UNREADABLE, NO_CALL)]
        return [with_repair(call, _DROPPED_ENTRIES) for call in calls] if len(calls) < len(entries) else calls

    def unmarked(self, value: JsonValue) -> list[FoundCall] | None:
        """Return the calls in a value without a marker; None if any part of it is something else."""
        if not _is_like_call(value):
            return None
        entries = list(self._calls_in(value))
        calls = [entry for entry in entries if entry is not None]
        if not calls or len(calls) < len(entries) or _has_data_as_arguments(value):
            return None
        return calls if all(isinstance(call, Call) or _was_meant(call) for call in calls) else None

    def call(self, written: str, arguments: JsonValue, *, repairs: tuple[str, ...] = ()) -> FoundCall:
        """Return a call of the tool `written` with its arguments as written, or an unusable call."""
        name = self.offered.named(written)
        if name is None:
            if isinstance(arguments, Mapping) and is_schema(arguments):
                return self._unusable(DiagnosticKind.NOT_ARGUMENTS, _SCHEMA_GIVEN, written)
            return unknown_tool_call(written, self.offered, self.start)
        if arguments is None or arguments == "" or arguments == []:
            return self._call_without_arguments(name)
        more: tuple[str, ...] = ()
        if isinstance(arguments, str):
            try:
                arguments, more = unwrap(arguments)
            except UnreadableValueError:
                return self._unusable(
                    DiagnosticKind.NOT_ARGUMENTS, "has a string instead of an object of arguments", name
                )
        if not isinstance(arguments, dict):
            return self._unusable(
                DiagnosticKind.NOT_ARGUMENTS, "has no object of arguments; write them as {name: value}", name
            )
        if not self.closed(arguments):
            return cut_off_call(name, self.start)
        if is_schema(arguments) and "properties" not in _properties(self.offered, name):
            return self._unusable(DiagnosticKind.NOT_ARGUMENTS, _SCHEMA_GIVEN, name)
        return Call(
            name=name, arguments=arguments, start=self.start, end=self.end, repairs=(*self.repairs, *repairs, *more)
        )

    def _calls_in(self, value: JsonValue, *, keyed: bool = False) -> Iterator[FoundCall | None]:
        """Yield a call for each object of `value`, None for everything in it that is no call."""
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Mapping):
                yield from self._calls_of_object(item, keyed=keyed)
            else:
                yield None

    def _calls_of_object(self, value: Mapping[str, JsonValue], *, keyed: bool) -> Iterator[FoundCall | None]:
        """Yield the calls of a message that lists calls, of an object around `function`, or of one that is a call."""
        if value.get("role", "assistant") != "assistant":
            yield self._unusable(DiagnosticKind.NOT_ARGUMENTS, "is in a message of another role")
            return
        for key in ("tool_calls", "function_call"):
            if key in value and value[key] is not None:
                inner = value[key]
                if value.keys() <= _EXTRA_KEYS_OF_LIST and isinstance(inner, list | Mapping):
                    yield from self._calls_in(inner)
                else:
                    yield None
                return
        inner = value.get("function")
        if isinstance(inner, Mapping):
            if value.keys() <= _EXTRA_KEYS | {"function"}:
                yield self._call_of_object(inner, value)
            else:
                yield self._surplus_keys(value.keys() - _EXTRA_KEYS - {"function"})
            return
        if keyed and len(value) == 1:
            [(name, arguments)] = value.items()
            if name not in NAME_KEYS:
                yield self.call(name, arguments)
                return
        yield self._call_of_object(value, value)

    def _call_of_object(self, value: Mapping[str, JsonValue], outer: Mapping[str, JsonValue]) -> FoundCall | None:
        """Return the call with its name and arguments among the keys of `value`, which is in `outer` or the same."""
        name_key = next((key for key in NAME_KEYS if isinstance(value.get(key), str)), None)
        if name_key is None:
            return self._call_by_key(value)
        written = value[name_key]
        assert isinstance(written, str), "the key was chosen because of it"
        keys = [key for key in ARGUMENT_KEYS if key in value]
        surplus = value.keys() - _EXTRA_KEYS - {name_key, *keys}
        if surplus:
            return self._surplus_keys(surplus, written)
        if len(keys) > 1:
            return self._unusable(
                DiagnosticKind.NOT_ARGUMENTS, f"has its arguments twice, as {' and '.join(keys)}", written
            )
        if not keys:
            if not (self.closed(value) and self.closed(outer)):
                return cut_off_call(written, self.start)
            return self.call(written, None)
        return self.call(written, value[keys[0]])

    def _call_by_key(self, value: Mapping[str, JsonValue]) -> FoundCall | None:
        """Read `{NAME: {...}}` where a call was announced in another shape."""
        if len(value) != 1:
            return None
        [(name, arguments)] = value.items()
        if not isinstance(arguments, Mapping) or self.offered.named(name) is None:
            return None
        return self.call(name, arguments, repairs=(_KEY_IS_NAME,))

    def _call_without_arguments(self, name: str) -> FoundCall:
        needed = self.offered.required(name)
        if needed:
            return self._unusable(DiagnosticKind.NOT_ARGUMENTS, f"has no arguments; it needs {', '.join(needed)}", name)
        return Call(name=name, arguments={}, start=self.start, end=self.end, repairs=self.repairs)

    def _surplus_keys(self, surplus: set[str], name: str = "") -> FoundCall:
        keys = ", ".join(sorted(surplus)[:4])
        return self._unusable(DiagnosticKind.NOT_ARGUMENTS, f"has keys besides a name and arguments: {keys:.80}", name)

    def _unusable(self, kind: DiagnosticKind, message: str, name: str = "") -> UnusableCall:
        return UnusableCall(kind=kind, message=message, start=self.start, name=name)


def is_schema(value: Mapping[str, JsonValue]) -> bool:
    """Return True if an object of arguments is in fact the schema of one."""
    return isinstance(value.get("properties"), Mapping) and ("type" in value or "required" in value)


def _properties(offered: OfferedTools, name: str) -> Mapping[str, JsonValue]:
    properties = offered.schema(name).get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _is_like_call(value: JsonValue) -> bool:
    """Return True if a value without a marker has what only calls have: name and arguments, or a list of calls."""
    if isinstance(value, list):
        return bool(value) and all(isinstance(item, Mapping) and _is_like_call(item) for item in value)
    if not isinstance(value, Mapping):
        return False
    if "tool_calls" in value or "function_call" in value or isinstance(value.get("function"), Mapping):
        return True
    return any(key in value for key in ARGUMENT_KEYS)


def _has_data_as_arguments(value: JsonValue) -> bool:
    """Return True if the arguments are a number, a boolean or a filled list: then this is data and no call."""
    if isinstance(value, list):
        return any(_has_data_as_arguments(item) for item in value)
    if not isinstance(value, Mapping):
        return False
    return any(
        isinstance(value[key], bool | int | float) or (isinstance(value[key], list) and value[key])
        for key in ARGUMENT_KEYS
        if key in value
    )


def _was_meant(unusable: UnusableCall) -> bool:
    """Return True if the model clearly wanted a call, so that it must learn of the error."""
    return unusable.kind in (DiagnosticKind.UNKNOWN_TOOL, DiagnosticKind.CUT_OFF)


def skip_fence(text: str, at: int) -> int:
    """Return the index after the opening line of a fence, if one opens here; otherwise after the white space."""
    found = _FENCE_OPENS.match(text, at)
    return found.end() if found else skip_space(text, at)


def read_objects(text: str, at: int, offered: OfferedTools, *, format: str) -> CallBlock:
    """Return the calls of a block whose first object or list begins at `at`."""
    items: list[FoundCall] = []
    sure = whole = True
    position = end = at
    while position == at or _NEXT_OBJECT.match(text, position):
        try:
            read = read_value(text, position, close_open=True)
        except UnreadableValueError as error:
            return broken_block(text, position, error, name_in(text, position), format=format, before=items)
        builder = CallBuilder(offered, position, read.end, read.repairs, read.closed)
        items += builder.items(read.value, keyed=format in _KEYED_FORMATS)
        sure = sure and is_sure(text, read)
        whole = whole and not read.unclosed
        between = _BETWEEN.match(text, read.end)
        position = between.end() if between else read.end
        end = read.end
    return closed_block(text, end, items, format=format, whole=whole, sure=sure)


def is_sure(text: str, read: JsonRead) -> bool:
    """Return True if a value would be the same if more text came."""
    return not read.repairs and skip_space(text, read.end) < len(text)


def closed_block(
    text: str, end: int, items: list[FoundCall], *, format: str, whole: bool = True, sure: bool = True
) -> CallBlock:
    """Return the block of `items` that end at `end`, with its closing tag; mark the items if there is none.

    `whole`: no bracket had to be added for the model. `sure`: no further text could change the items.
    """
    after = closer_after(text, end)
    if after is None:
        sure = sure and not closer_may_come(text, end)
        if format not in _OPEN_ENDED:
            items = [with_repair(item, NO_CLOSER) for item in items]
            whole = False
    if not whole:
        items = [as_unclosed(item) for item in items]
    return CallBlock(end=end if after is None else after, format=format, items=tuple(items), sure=sure)


def broken_block(
    text: str, start: int, error: UnreadableValueError, name: str, *, format: str, before: Sequence[FoundCall] = ()
) -> CallBlock:
    """Return a block whose call at `start` cannot be read: the items `before` it count, the rest is skipped."""
    closer = None if error.cut else CLOSER.search(text, error.position)
    return CallBlock(
        end=closer.end() if closer else len(text),
        format=format,
        items=(*before, unreadable_call(error, name, start)),
        sure=False,
    )


def name_in(text: str, at: int) -> str:
    """Return the name that a broken object seems to have, for the message about it."""
    found = _BROKEN_NAME.match(text, at)
    return found[1] if found else ""


@frozen_dataclass
class ArgumentsRead:
    """An object of arguments that stands alone, without the name of its tool."""

    values: dict[str, JsonValue]
    end: int
    """Index in the text after the object and its fence."""
    repairs: tuple[str, ...]
    sure: bool
    """True if no further text could change the object or its end."""

    def call_of(self, written: str, offered: OfferedTools, start: int) -> FoundCall:
        """Return the call of the tool `written` with these arguments. It begins at `start`."""
        return CallBuilder(offered, start, self.end, self.repairs).call(written, self.values)


def read_arguments(text: str, at: int) -> ArgumentsRead:
    """Return the object of arguments at `at`, perhaps in a fence.

    Raises UnreadableValueError if it cannot be read or the text does not close it.
    """
    fenced = _FENCE_OPENS.match(text, at)
    read = read_value(text, fenced.end() if fenced else at)
    try:
        value, repairs = unwrap(read.value)
    except UnreadableValueError as error:
        raise UnreadableValueError(error.message, read.end) from None
    if not isinstance(value, dict):
        raise UnreadableValueError("there is no object of arguments", at)
    end, sure = read.end, is_sure(text, read)
    if fenced and (fence_end := _FENCE_ENDS.match(text, end)):
        end = fence_end.end()
        sure = sure and end < len(text)
    elif fenced:
        sure = sure and text[skip_space(text, end)] not in "`~"
    return ArgumentsRead(values=value, end=end, repairs=(*read.repairs, *repairs), sure=sure)


def read_named(opening: Opening, written: str, at: int, *, format: str) -> CallBlock:
    """Return the call of the tool `written`, whose object of arguments begins at `at`."""
    text, start = opening.text, opening.start
    try:
        arguments = read_arguments(text, at)
    except UnreadableValueError as error:
        return broken_block(text, start, error, written, format=format)
    item = arguments.call_of(written, opening.offered, start)
    return closed_block(text, arguments.end, [item], format=format, sure=arguments.sure)
