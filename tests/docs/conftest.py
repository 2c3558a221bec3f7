"""The fixtures of the README's tests."""

from tests.readme.conftest import folder, path_with_chatops

__all__ = ["folder", "path_with_chatops"]
