"""Notices above the message field that disappear by themselves."""

from typing import Any

from textual.app import App

from chatops.domain.sanitize import sanitize

NOTICE_S = 6
"""Seconds that a notice is shown."""


def show_notice(app: App[Any], text: str) -> str:
    """Show any text for `NOTICE_S` seconds. Return it as shown."""
    shown = sanitize(text)
    app.notify(shown, markup=False, timeout=NOTICE_S)
    return shown
