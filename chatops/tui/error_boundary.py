"""Error boundary: a bug in the UI is shown in one line and logged in full, and the session continues.

A widget whose handler raises would handle no further messages, and Textual would end the app. Nothing that a user typed
or decided may depend on a drawing that fails.
"""

import logging
from collections import deque
from collections.abc import Callable
from types import CodeType

from textual.worker import WorkerFailed

from chatops.domain.sanitize import sanitize
from chatops.tui.textual_internals import DispatchHook, report_error

log = logging.getLogger(__name__)

TOO_MANY, WITHIN_S = 30, 10.0
"""This many errors within this many seconds end the app: a UI that fails at every frame is useless."""
_SHOW_AGAIN_S = 10.0


class ErrorBoundary(DispatchHook):
    """Mixin for screens and widgets: a handler's exception is reported to the app, and messages are still handled."""

    def survives(self, error: Exception) -> bool:
        """Report an error to the app. Without a terminal, as in tests, errors are raised."""
        if self.app.is_headless:
            return False
        report_error(self.app, error)
        return True


class ErrorReporter:
    """Records errors. `clock` returns monotonic seconds, `show` shows a line to the user."""

    def __init__(self, *, clock: Callable[[], float], show: Callable[[str], None]) -> None:
        self._clock = clock
        self._show = show
        self._times: deque[float] = deque(maxlen=TOO_MANY)
        self._shown: dict[tuple[type[BaseException], CodeType | None, int], float] = {}
        """When an error of this type from this line of code was shown last."""

    def note(self, error: Exception) -> bool:
        """Log an error, and show it unless one from the same line was just shown.

        Returns False if there were so many that continuing makes no sense.
        """
        cause = error.error if isinstance(error, WorkerFailed) else error
        if log.hasHandlers():
            # Without a log file, the logging module would write the traceback over the screen.
            log.error("an error in the screen", exc_info=cause)
        now = self._clock()
        self._times.append(now)
        origin = (type(cause), *_raised_at(cause))
        if now - self._shown.get(origin, now - _SHOW_AGAIN_S) >= _SHOW_AGAIN_S:
            self._shown[origin] = now
            text = sanitize(f"{type(cause).__name__}: {cause}", newlines=False)
            self._show(f"Internal error ({text[:200]}). The session continues.{_where()}")
        return len(self._times) < TOO_MANY or now - self._times[0] > WITHIN_S


def _raised_at(error: BaseException) -> tuple[CodeType | None, int]:
    """Return the function and the line that raised an error."""
    trace = error.__traceback__
    if trace is None:
        return None, 0
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code, trace.tb_lineno


def _where() -> str:
    """Return a sentence that names the log file."""
    files = [one.baseFilename for one in logging.getLogger().handlers if isinstance(one, logging.FileHandler)]
    return f" Details: {files[0]}" if files else ""
