"""Machines without bubblewrap, and without any sandbox."""

import pytest

from chatops.domain.sandbox import SandboxLevel
from chatops.sandbox.confinement import Probed, landlock_fault, probe


def at_level(level: SandboxLevel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `level` be the highest that works in this process; skip the test where it does not."""
    fault = probe().fault if level is SandboxLevel.HARD else landlock_fault() if level else ""
    if fault:
        pytest.skip(fault)
    if level is SandboxLevel.NONE:
        without_sandbox(monkeypatch)
    elif level is not SandboxLevel.HARD:
        monkeypatch.setattr("chatops.sandbox.confinement.probe", lambda: Probed("", "bubblewrap is not installed"))


def without_sandbox(monkeypatch: pytest.MonkeyPatch, why: str = "bubblewrap is not installed") -> None:
    """Make commands run unsandboxed in this process, for the reason `why`."""
    for module in ("chatops.sandbox.confinement", "chatops.wiring.doctor"):
        monkeypatch.setattr(f"{module}.probe", lambda: Probed("", why))
        monkeypatch.setattr(f"{module}.landlock_fault", lambda: "this kernel has no Landlock")
