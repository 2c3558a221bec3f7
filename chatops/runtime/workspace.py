"""Workspaces that are deleted or moved while sessions use them."""

from pathlib import Path

from chatops.domain.sanitize import show_path


def workspace_gone(workspace: Path) -> str:
    """Return the message for the user and the model: no tool runs in another folder instead."""
    return f"The workspace {show_path(str(workspace))} is gone: no tool runs until it is there again."


def workspace_back(workspace: Path) -> str:
    """Return the message for when the folder is back."""
    return f"The workspace {show_path(str(workspace))} is there again."


def is_gone(workspace: Path) -> bool:
    """Return True if the folder does not exist any more."""
    try:
        return not workspace.is_dir()
    except OSError:
        return True
