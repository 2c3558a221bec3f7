"""Delivery of a session's events to UIs."""

import logging
import time
from collections.abc import Callable

from chatops.domain.events import Event, Notice, Published

log = logging.getLogger(__name__)

Listener = Callable[[Published], None]


class EventBus:
    """Delivers events to listeners, in order, on the event loop. A UI takes a snapshot first and then subscribes.

    An exception in a listener is logged and never stops the turn.
    """

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._notices = 0

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

    def notify(self, text: str, *, advice: str = "", parent_id: str) -> None:
        """Deliver a warning for the user."""
        self._notices += 1
        number = f"{parent_id}.notice{self._notices}"
        self.publish(Notice(id=number, parent_id=parent_id, text=text, advice=advice, level="warning"))
