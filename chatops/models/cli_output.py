"""Read the answer out of what a program prints: all of its text, or its events.

Events of ``claude -p --output-format stream-json``, as documented in https://code.claude.com/docs/en/headless and
https://code.claude.com/docs/en/agent-sdk/typescript (SDKMessage), November 2026: one JSON object a line. ``system``
with subtype ``init`` names tools and MCP servers; ``stream_event`` holds an event of the Messages API; ``assistant``
holds whole messages; ``result`` ends it.
"""

import json
import logging
from collections.abc import Iterator, Mapping

from chatops.domain.canonical import JsonValue
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.model import FailureKind, ModelFailure
from chatops.models.base import EngineError
from chatops.models.error_text import plain_line
from chatops.models.server_json import as_list, as_object, as_text

log = logging.getLogger(__name__)

_LONGEST_LINE = 8_000_000
"""Characters of a line, so that a program without line ends cannot fill the memory."""
_FINISH_REASONS: Mapping[str, str] = {"max_tokens": "length", "refusal": "content_filter"}
_KINDS_OF_STATUS: Mapping[int, FailureKind] = {
    401: FailureKind.UNAUTHORIZED,
    403: FailureKind.UNAUTHORIZED,
    429: FailureKind.RATE_LIMITED,
    529: FailureKind.RATE_LIMITED,
}
_KINDS_OF_WORDS = (
    (
        ("enotfound", "eai_again", "econnrefused", "etimedout", "connection error", "unable to connect"),
        FailureKind.UNREACHABLE,
    ),
    (("login", "log in", "api key", "authenticat", "oauth"), FailureKind.UNAUTHORIZED),
    (("limit", "429", "overloaded"), FailureKind.RATE_LIMITED),
)
"""Kinds by words of the program's own errors, in lower case. The first that fits counts."""
NO_NETWORK = "Check the network, or choose another model."
_TOOLS_ON = "Nothing of its answer was used. Update the program, or choose another model."


@frozen_dataclass
class CliEnd:
    """How the program ended."""

    code: int | None
    """Its exit code; None if it was stopped."""
    errors: str = ""
    """The last that it wrote to standard error."""
    unreached: tuple[str, ...] = ()
    """Each ``HOST:PORT`` that it asked for and its sandbox did not reach."""


class ReportedError(EngineError):
    """Raised if the program itself reports that it has no answer."""


Delta = Mapping[str, JsonValue]
"""A piece of the answer in the form of chat completions."""


class PlainReader:
    """Reader of a program whose whole output is the answer."""

    def __init__(self) -> None:
        self.usage: dict[str, JsonValue] = {}
        self.finish = "stop"
        self.finished = False
        self._started = False

    def feed(self, text: str) -> Iterator[Delta]:
        """Yield the text."""
        self._started = self._started or bool(text.strip())
        yield {"content": text}

    def end(self, end: CliEnd, *, name: str) -> Iterator[Delta]:
        """Yield nothing. Raises EngineError if the program has not answered."""
        if end.code != 0 or not self._started:
            raise _no_answer(end, name=name)
        return iter(())


class EventReader:
    """Reader of lines of JSON. Nothing is passed on before the program has said that it has no tools of its own."""

    def __init__(self, name: str, *, login: str) -> None:
        """`name` of the program is for messages, and `login`, the advice to a user who is not logged in."""
        self.usage: dict[str, JsonValue] = {}
        self.finish = "stop"
        self.finished = False
        self._name = name
        self._login = login
        self._line_parts: list[str] = []
        self._length = 0
        self._toolless = False
        """True once the program has said that it has no tools."""
        self._streamed = False
        """True once text came in pieces."""
        self._texts: list[str] = []
        """The texts of whole messages: the answer of a program that sends no pieces."""

    def feed(self, text: str) -> Iterator[Delta]:
        """Yield the answer in the lines that are complete. Raises EngineError for tools, errors, and endless lines."""
        while text and not self.finished:
            line, end, text = text.partition("\n")
            self._line_parts.append(line)
            self._length += len(line)
            if self._length > _LONGEST_LINE:
                raise EngineError(self._failure(FailureKind.BROKEN_STREAM, "writes lines without an end"))
            if end:
                whole, self._line_parts, self._length = "".join(self._line_parts), [], 0
                yield from self._read_event(whole)

    def end(self, end: CliEnd, *, name: str) -> Iterator[Delta]:
        """Read a last line without an end. Raises EngineError if the program has not finished its answer."""
        yield from self._read_event("".join(self._line_parts))
        if not self.finished:
            raise _no_answer(end, name=name)

    def _read_event(self, line: str) -> Iterator[Delta]:
        try:
            event = as_object(json.loads(line)) if line.strip() else {}
        except (ValueError, RecursionError):
            log.info("%s wrote a line that is no JSON", self._name)
            return
        match event.get("type"):
            case "system" if event.get("subtype") == "init":
                self._check_tools(event)
            case "stream_event" if not event.get("parent_tool_use_id"):
                self._must_be_toolless()
                yield from self._read_delta(as_object(event.get("event")))
            case "assistant" if not event.get("parent_tool_use_id"):
                self._read_message(event)
            case "result":
                yield from self._read_result(event)

    def _check_tools(self, event: Mapping[str, object]) -> None:
        """Take the program's list of its tools. Raises EngineError unless it is there and empty."""
        own = event.get("tools")
        servers = as_list(event.get("mcp_servers"))
        if own != [] or servers:
            names = [*map(as_text, as_list(own)), *(as_text(as_object(server).get("name")) for server in servers)]
            shown = plain_line(", ".join(filter(None, names)) or "it does not name them", limit=120)
            raise EngineError(self._failure(FailureKind.CONFIGURATION, f"has tools of its own ({shown})", _TOOLS_ON))
        self._toolless = True

    def _must_be_toolless(self) -> None:
        """Raise EngineError unless the program has said that it has no tools."""
        if not self._toolless:
            raise EngineError(
                self._failure(FailureKind.CONFIGURATION, "does not say which tools of its own it has", _TOOLS_ON)
            )

    def _read_delta(self, event: Mapping[str, object]) -> Iterator[Delta]:
        """Read an event of the Messages API, https://platform.claude.com/docs/en/build-with-claude/streaming."""
        match event.get("type"):
            case "content_block_start":
                self._must_be_no_call(as_object(event.get("content_block")))
            case "content_block_delta":
                delta = as_object(event.get("delta"))
                if text := as_text(delta.get("text")):
                    self._streamed = True
                    yield {"content": text}
                if thought := as_text(delta.get("thinking")):
                    yield {"reasoning_content": thought}
            case "message_delta":
                self.finish = _FINISH_REASONS.get(as_text(as_object(event.get("delta")).get("stop_reason")), "stop")

    def _read_message(self, event: Mapping[str, object]) -> None:
        for block in map(as_object, as_list(as_object(event.get("message")).get("content"))):
            self._must_be_no_call(block)
            # An error of the program comes as a message too. The event `result` reports it.
            if not event.get("error"):
                self._texts.append(as_text(block.get("text")))

    def _must_be_no_call(self, block: Mapping[str, object]) -> None:
        if "tool" in as_text(block.get("type")):
            what = f"calls a tool of its own ({plain_line(as_text(block.get('name')), limit=60)})"
            raise EngineError(self._failure(FailureKind.CONFIGURATION, what, _TOOLS_ON))

    def _read_result(self, event: Mapping[str, object]) -> Iterator[Delta]:
        """Read the last event: an error, or the end of the answer. Raises ReportedError."""
        text = as_text(event.get("result"))
        if event.get("is_error") or as_text(event.get("subtype")) not in ("success", ""):
            errors = " ".join(map(as_text, as_list(event.get("errors")))) or text or as_text(event.get("subtype"))
            raise ReportedError(self._reported_failure(errors, status=event.get("api_error_status")))
        self._must_be_toolless()
        if not self._streamed:
            yield {"content": "".join(self._texts) or text}
        self.usage = _usage(as_object(event.get("usage")))
        self.finished = True

    def _reported_failure(self, text: str, *, status: object) -> ModelFailure:
        kind, shown = _kind_of_report(text, status=status), plain_line(text, limit=300).rstrip(".")
        if kind is FailureKind.UNAUTHORIZED:
            return self._failure(kind, f"is not logged in: {shown}", self._login)
        return self._failure(kind, f"reports: {shown}", NO_NETWORK if kind is FailureKind.UNREACHABLE else "")

    def _failure(self, kind: FailureKind, what: str, advice: str = "") -> ModelFailure:
        return ModelFailure(
            kind=kind, message=f"{self._name} {what}.", advice=advice or "Try again, or choose another model."
        )


def _kind_of_report(text: str, *, status: object) -> FailureKind:
    if isinstance(status, int):
        return _KINDS_OF_STATUS.get(status, FailureKind.SERVER_ERROR)
    # The program gives no status if it failed before it asked the API: its words are all there is.
    kinds = (kind for words, kind in _KINDS_OF_WORDS if any(word in text.lower() for word in words))
    return next(kinds, FailureKind.SERVER_ERROR)


def _no_answer(end: CliEnd, *, name: str) -> EngineError:
    how = "was stopped" if end.code is None else f"ended with exit code {end.code}"
    last = plain_line(end.errors.strip().rpartition("\n")[2], limit=300).rstrip(".")
    failure = ModelFailure(
        kind=FailureKind.BROKEN_STREAM,
        message=f"{name} {how} without an answer{f': {last}' if last else ''}.",
        advice="Try the same program in a terminal, or choose another model.",
    )
    return EngineError(failure)


def _usage(counts: Mapping[str, object]) -> dict[str, JsonValue]:
    """Return the counts of the Messages API as those of chat completions, which count cached tokens too."""
    if not counts:
        return {}
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    fresh, made, cached, written = (
        value if isinstance(value := counts.get(name), int) and not isinstance(value, bool) else 0 for name in names
    )
    return {
        "prompt_tokens": fresh + made + cached,
        "completion_tokens": written,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
