"""State of the user beside the sessions: texts sent, drafts, working times of runs, choices on the screen."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from chatops.config.settings import load_settings, store_theme
from chatops.domain.ids import SessionId
from chatops.runtime.session import owned
from chatops.runtime.view import SessionView
from chatops.wiring.stored import Settings

HISTORY_MESSAGES = 500
"""Messages of a workspace that the composer offers again."""


class UserState:
    """The user's state in one workspace. Everything but the theme and the favourite roles is in the store."""

    def __init__(self, settings: Settings, *, workspace: Path, file: Path) -> None:
        """Read the history. `file` is the user's settings file."""
        self._settings = settings
        self._workspace = workspace
        self._file = file
        self._history_key = f"history:{workspace}"
        self._history = [text for text in _read_list(settings.get(self._history_key)) if isinstance(text, str)]
        self.shows_turn_cost = load_settings(file).turn_cost
        """True if the settings file, as it was at the start, wants tokens and cost shown after each turn."""

    def history(self) -> Sequence[str]:
        """Return what the user has sent from this workspace, oldest first."""
        return tuple(self._history)

    def remember(self, text: str) -> None:
        """Add a text to the history of this workspace."""
        if self._history[-1:] != [text]:
            self._history = [*self._history, text][-HISTORY_MESSAGES:]
            self._settings.set(self._history_key, json.dumps(self._history))

    def draft(self, session_id: SessionId, *, followed: bool) -> str:
        """Return what was typed and not sent in a session, in any window.

        `followed` selects the draft typed in a window that followed the session, else that of its owner.
        """
        return self._settings.fresh(self.draft_setting(session_id, followed=followed)) or ""

    def draft_setting(self, session_id: SessionId, *, followed: bool) -> str:
        """Return the name of the setting that holds the draft."""
        return f"{'read-along-' if followed else ''}draft:{self._workspace}:{session_id}"

    def save_draft(self, session_id: SessionId, *, followed: bool, text: str) -> None:
        """Store what was typed and not sent. An empty text deletes it."""
        self._settings.set(self.draft_setting(session_id, followed=followed), text)

    async def take_queued(self, session: SessionView) -> str:
        """Make the newest queued message the draft, in one step, and return it; empty if nothing is queued."""
        key = self.draft_setting(session.session_id, followed=False)
        return await owned(session, "The queue was not changed").queue.take(into=key)

    async def save_theme(self, name: str) -> None:
        """Store the theme for this user. Raises ConfigError if that fails."""
        await asyncio.to_thread(store_theme, self._file, name)

    def favourite_roles(self) -> Sequence[str]:
        """Return the roles that the user's settings name as favourites, in their order."""
        return load_settings(self._file).favourite_roles

    def step_times(self, session_id: SessionId) -> Sequence[float]:
        """Return the seconds that each step of a run has worked, as stored when it was last shown."""
        times = _read_list(self._settings.get(f"step times:{session_id}"))
        known = [float(time) for time in times if isinstance(time, int | float) and time >= 0]
        return known if len(known) == len(times) else ()

    def save_step_times(self, session_id: SessionId, seconds: Sequence[float]) -> None:
        """Store how long each step of a run has worked."""
        self._settings.set(f"step times:{session_id}", json.dumps([round(time, 1) for time in seconds]))


def _read_list(stored: str | None) -> list[object]:
    """Return a stored list; an empty one if it cannot be read."""
    try:
        values = json.loads(stored or "[]")
    except ValueError:
        return []
    return values if isinstance(values, list) else []
