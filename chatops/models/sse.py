"""Server-sent events from bytes that are cut anywhere (WHATWG HTML, section 9.2, read leniently).

Lines may end in LF, CRLF or CR. A byte order mark at the start and the space after the colon are optional.
"""

from dataclasses import dataclass

DONE = b"[DONE]"


class EventTooLargeError(Exception):
    """One event is larger than the reader accepts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    """One event. `data` is not decoded, so that a character cut in two by the network stays intact."""

    data: bytes
    name: str = ""


class SseReader:
    """Parser that takes bytes as they come and returns complete events; it drops comments."""

    def __init__(self, *, limit: int = 32 * 1024 * 1024) -> None:
        self._limit = limit
        self._rest: list[bytes] = []
        """The unfinished line, in pieces. They are joined only at its end, so that a long line takes linear time."""
        self._rest_size = 0
        self._data: list[bytes] = []
        self._size = 0
        self._name = ""
        self._after_cr = False
        self._at_start = True

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Return the events that `chunk` completes.

        Raises EventTooLargeError.
        """
        if self._after_cr and chunk:
            # The CR already ended the line; this LF belongs to it.
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        if not chunk:
            return []
        if self._at_start:
            chunk = b"".join([*self._rest, chunk])
            self._rest, self._rest_size = [chunk], len(chunk)
            if len(chunk) < 3 and b"\xef\xbb\xbf".startswith(chunk):
                return []
            chunk = chunk.removeprefix(b"\xef\xbb\xbf")
            self._rest, self._rest_size, self._at_start = [], 0, False
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        first, *others = chunk.split(b"\n")
        self._rest.append(first)
        self._rest_size += len(first)
        if self._rest_size + self._size > self._limit:
            raise EventTooLargeError
        if not others:
            return []
        lines = [b"".join(self._rest), *others[:-1]]
        self._rest, self._rest_size = [others[-1]], len(others[-1])
        return [event for line in lines if (event := self._line(line)) is not None]

    def close(self) -> list[ServerEvent]:
        """Return the event that the end of the stream completes, if any: servers forget the last empty line."""
        lines = [b"".join(self._rest), b""]
        self._rest, self._rest_size = [], 0
        return [event for line in lines if (event := self._line(line)) is not None]

    def _line(self, line: bytes) -> ServerEvent | None:
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._size += len(value)
            if self._size > self._limit:
                raise EventTooLargeError
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        return None

    def _dispatch(self) -> ServerEvent | None:
        if not self._data:
            self._name = ""
            return None
        event = ServerEvent(data=b"\n".join(self._data), name=self._name)
        self._data, self._size, self._name = [], 0, ""
        return event
