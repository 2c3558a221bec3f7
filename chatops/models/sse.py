"""Read server-sent events (WHATWG HTML, 9.2) from bytes that are cut anywhere."""

from codecs import BOM_UTF8

from chatops.domain.frozen_dataclass import frozen_dataclass


class EventTooLargeError(Exception):
    """One event is larger than the reader accepts."""


@frozen_dataclass
class ServerEvent:
    """One event. `data` is not decoded, so that a character cut in two by the network stays intact."""

    data: bytes
    name: str = ""


class SseReader:
    """Parser of server-sent events (WHATWG HTML, 9.2) that takes bytes cut anywhere and returns complete events.

    It is lenient: lines may end in LF, CRLF or CR; a byte order mark and the space after the colon are optional.
    """

    def __init__(self, *, limit: int = 32 * 1024 * 1024) -> None:
        self._size_limit = limit
        """Maximum bytes of one event, with the line that is not finished."""
        self._rest: list[bytes] = []
        """The unfinished line, in pieces. They are joined only at its end, so that a long line takes linear time."""
        self._rest_size = 0
        self._data: list[bytes] = []
        """The data lines of the unfinished event."""
        self._size = 0
        """Bytes in them."""
        self._name = ""
        self._after_cr = False
        """True if the last byte was a CR: an LF that follows belongs to the same line end."""
        self._at_start = True
        """True until it is known whether the stream begins with a byte order mark."""

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Return the events that `chunk` completes.

        Raises EventTooLargeError.
        """
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        if not chunk:
            return []
        if self._at_start:
            chunk = b"".join([*self._rest, chunk])
            self._rest, self._rest_size = [chunk], len(chunk)
            if len(chunk) < len(BOM_UTF8) and BOM_UTF8.startswith(chunk):
                return []
            chunk = chunk.removeprefix(BOM_UTF8)
            self._rest, self._rest_size, self._at_start = [], 0, False
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        first, *others = chunk.split(b"\n")
        self._rest.append(first)
        self._rest_size += len(first)
        if self._rest_size + self._size > self._size_limit:
            raise EventTooLargeError
        if not others:
            return []
        lines = [b"".join(self._rest), *others[:-1]]
        self._rest, self._rest_size = [others[-1]], len(others[-1])
        return [event for line in lines if (event := self._take_line(line)) is not None]

    def close(self) -> list[ServerEvent]:
        """Return the event that the end of the stream completes, if any: servers forget the last empty line."""
        lines = [b"".join(self._rest), b""]
        self._rest, self._rest_size = [], 0
        return [event for line in lines if (event := self._take_line(line)) is not None]

    def _take_line(self, line: bytes) -> ServerEvent | None:
        if not line:
            return self._finish_event()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._size += len(value)
            if self._size > self._size_limit:
                raise EventTooLargeError
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        return None

    def _finish_event(self) -> ServerEvent | None:
        if not self._data:
            self._name = ""
            return None
        event = ServerEvent(data=b"\n".join(self._data), name=self._name)
        self._data, self._size, self._name = [], 0, ""
        return event
