"""Errors for unknown names."""

from collections.abc import Sequence
from difflib import get_close_matches

from chatops.domain.errors import ConfigError


def unknown(kind: str, name: str, known: Sequence[str]) -> ConfigError:
    """Return the error for an unknown name, with the known ones, nearest first."""
    near = get_close_matches(name, known, n=3, cutoff=0.4)
    ordered = [*near, *(one for one in known if one not in near)]
    listing = ", ".join(ordered) if ordered else "none"
    return ConfigError(f"There is no {kind} {name!r}.", advice=f"Known: {listing}.")
