"""A workflow definition: its values, and the position in the file of each of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from chatops.policy.workflow import WorkflowSpec

Keys = tuple[str | int, ...]
"""Keys and indexes from the workflow's own object down to a value, as spelled in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A workflow with the positions of its values. A workflow made in Python has none."""

    spec: WorkflowSpec
    prefix: Keys = ()
    """Keys of the workflow's object in its file: ``workflows`` and its name; empty for a file of its own."""
    places: Mapping[Keys, tuple[int, int]] = field(default_factory=dict, repr=False, compare=False)
    """Line and column (from 1) by keys, which start at the top of the file."""

    @property
    def name(self) -> str:
        """The workflow's name."""
        return self.spec.name

    def place(self, keys: Keys) -> tuple[int, int] | None:
        """Return line and column of the value at `keys`, or of the closest one around it; None without a file."""
        path = (*self.prefix, *keys)
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path)
