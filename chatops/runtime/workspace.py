"""A workspace that is deleted or moved while conversations work in it."""

from pathlib import Path

from chatops.domain.sanitize import show_path


def workspace_gone(workspace: Path) -> str:
    """What is said to the person and to the model: no tool works anywhere else instead."""
    return f"The workspace {show_path(str(workspace))} is gone: no tool runs until it is there again."


def workspace_back(workspace: Path) -> str:
    """What is said when it is."""
    return f"The workspace {show_path(str(workspace))} is there again."


def is_gone(workspace: Path) -> bool:
    """Whether there is no such folder any more."""
    try:
        return not workspace.is_dir()
    except OSError:
        return True
