"""Fan-out of a session's events to its UIs, in order, on the event loop."""

import logging
import time
from collections.abc import Callable

from chatops.domain.events import Event, Published

Listener = Callable[[Published], None]

log = logging.getLogger(__name__)


class Bus:
    """Delivers events to listeners. A UI takes a snapshot first and then subscribes.

    An exception in a listener is logged and never stops the turn.
    """

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with each event from now on. Returns a function that unsubscribes it."""
        self._listeners.append(listener)

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return stop

    def publish(self, event: Event) -> None:
        """Deliver `event` to all listeners."""
        published = Published(at=time.time(), event=event)
        for listener in tuple(self._listeners):
            try:
                listener(published)
            except Exception:
                log.exception("a listener failed on %s", type(event).__name__)
