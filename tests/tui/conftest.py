"""Colours of code in pictures do not depend on how busy the machine is."""

import pytest

from chatops.tui.transcript import markdown


@pytest.fixture(autouse=True)
def patient_highlighting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a lexer minutes: one that has used up its time loses its colours in every later picture."""
    monkeypatch.setattr(markdown, "_TIME_LIMIT_S", 300.0)
