"""The choice of a theme (`Themes`): one of ours (`colours`), of the user's (`user_themes`) or of Textual's."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chatops.domain.errors import ConfigError
from chatops.tui.colours import DARK, LIGHT, in_sixteen, role_colours
from chatops.tui.user_themes import read_user_theme, user_theme_names

if TYPE_CHECKING:
    from textual.app import App

AUTO = "auto"
"""The choice of `DARK` or `LIGHT` by the terminal's background."""
_BACKGROUND_ANSWER = re.compile(r"\x1b\]11;rgba?:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})")
"""The answer of a terminal that is asked for its background (OSC 11): red, green and blue, each of 1 to 4 digits."""


class Themes:
    """The choice of a theme, which may be `AUTO`, and the colours of roles in it."""

    def __init__(
        self,
        app: "App[Any]",
        *,
        environ: Mapping[str, str],
        colours: bool,
        sixteen: bool = False,
        folder: Path | None = None,
    ) -> None:
        """Register our themes. COLORFGBG of `environ` counts until the terminal answers; without it, AUTO is dark.

        `colours` is False for a terminal without any: roles have none there either. `sixteen` is True for one that has
        no more. `folder` holds the user's own themes.
        """
        self._folder = folder
        self._sixteen = sixteen
        for theme in (DARK, LIGHT):
            app.register_theme(in_sixteen(theme) if self._sixteen else theme)
        self._app = app
        # The last number of COLORFGBG is the background's: 7 and 15 are white.
        self._dark = environ.get("COLORFGBG", "").rpartition(";")[2] not in ("7", "15")
        """True if the terminal's background is dark, as far as it is known."""
        self.colours = colours
        self._role_choices: tuple[tuple[str, str], ...] = ()
        """The roles, each with the colour that the registries give it; empty if none."""
        self._cached_role_colours: tuple[object, Mapping[str, str]] = (None, {})
        """What the last result of `role_colours` was made from, and that result."""
        self.choice = AUTO
        """The name that the user has chosen."""

    @property
    def many_colours(self) -> bool:
        """True if the terminal has more than sixteen colours."""
        return self.colours and not self._sixteen

    @property
    def names(self) -> tuple[str, ...]:
        """The themes that the user can choose: ours, the user's own, those of Textual."""
        ours = (AUTO, DARK.name, LIGHT.name)
        users = tuple(name for name in self._user_names() if name not in ours)
        return (*ours, *users, *sorted(self._app.available_themes.keys() - {*ours, *users}))

    def _user_names(self) -> tuple[str, ...]:
        return user_theme_names(self._folder) if self._folder is not None else ()

    def use(self, name: str) -> None:
        """Use a theme by name, or with AUTO the one of ours that fits the terminal. Raises ConfigError."""
        self._show(name)
        self.choice = name

    def preview(self, name: str) -> str:
        """Show a theme that is not chosen yet. Return the reason if that is not possible."""
        try:
            self._show(name)
        except ConfigError as error:
            return str(error)
        return ""

    def _show(self, name: str) -> None:
        if self._folder is not None and name not in (AUTO, DARK.name, LIGHT.name) and name in self._user_names():
            self._app.register_theme(read_user_theme(self._folder, name))
        self._app.theme = name if name != AUTO else DARK.name if self._dark else LIGHT.name

    def background_reported(self, answer: str) -> None:
        """Take the terminal's answer on the colour of its background into account."""
        dark = _is_dark_answer(answer)
        if dark is not None and dark != self._dark:
            self._dark = dark
            if self.choice == AUTO:
                self.use(AUTO)

    def name_roles(self, roles: Sequence[tuple[str, str]]) -> None:
        """Set the roles, with the colours that the registries give them; see `role_colours`."""
        self._role_choices = tuple(roles)

    @property
    def role_colours(self) -> Mapping[str, str]:
        """A colour for each role, readable in the theme in use."""
        made_from = (self._app.theme, self._role_choices)
        if self._cached_role_colours[0] != made_from:
            colours = role_colours(
                self._role_choices if self.colours else (),
                dark=self._app.current_theme.dark,
                background=self._app.theme_variables.get("background", ""),
                sixteen=self._sixteen,
            )
            self._cached_role_colours = (made_from, colours)
        return self._cached_role_colours[1]


def _is_dark_answer(answer: str) -> bool | None:
    """Return True if a terminal's answer to OSC 11 names a dark background; None if it is no such answer."""
    match = _BACKGROUND_ANSWER.match(answer)
    if match is None:
        return None
    red, green, blue = (int(digits, 16) / float(16 ** len(digits) - 1) for digits in match.groups())
    # The brightness that eyes see in each of them (luma of ITU-R BT.601).
    return bool(0.299 * red + 0.587 * green + 0.114 * blue < 0.5)
