"""A machine without any sandbox: neither bubblewrap nor Landlock works."""

import pytest

from chatops.tools.sandbox import Probed


def without_sandbox(monkeypatch: pytest.MonkeyPatch, why: str = "bubblewrap is not installed") -> None:
    """Make commands run unsandboxed in this process, for the reason `why`."""
    for module in ("chatops.tools.sandbox", "chatops.headless.doctor"):
        monkeypatch.setattr(f"{module}.probe", lambda: Probed("", why))
        monkeypatch.setattr(f"{module}.landlock_fault", lambda: "this kernel has no Landlock")
