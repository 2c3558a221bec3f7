"""A registry that has changed, in words for whoever is in a conversation under it."""

from chatops.domain.errors import ConfigError
from chatops.policy.grant import Grant, tool_difference
from chatops.runtime.rights import Rights
from chatops.runtime.standing import Standing


def told_of_change(standing: Standing, before: Grant, now: Grant, *, rights: Rights) -> tuple[str, ...]:
    """What is said when a file has changed, or was put in force; nothing if it means nothing for this role."""
    note = note_on_change(standing, rights=rights)
    if note:
        return (note,)
    gained, lost = tool_difference(before, now)
    if not gained and not lost and before.layers == now.layers:
        return ()
    return (f"The registry as it is now is in force ({_for_role(now.role, gained, lost)}).",)


def note_on_registry(standing: Standing, *, rights: Rights) -> str:
    """What stays true of the registry until somebody does something about it: that it is broken, or has changed."""
    return rights.broken() or note_on_change(standing, rights=rights)


def note_on_change(standing: Standing, *, rights: Rights) -> str:
    """How a changed file that is not in force differs for this role, and what that means; empty if there is none."""
    try:
        change = standing.change(rights)
    except ConfigError as error:
        return f"The registry has changed: {error} Nothing of this role is permitted until it is there again."
    if change is None:
        return ""
    gained, lost = tool_difference(*change)
    return (
        f"The registry has changed ({_for_role(standing.role, gained, lost)}). What it takes away is gone; "
        "/reload puts the rest in force."
    )


def _for_role(role: str, gained: tuple[str, ...], lost: tuple[str, ...]) -> str:
    difference = " ".join([*(f"+ {name}" for name in gained), *(f"− {name}" for name in lost)])
    return f"for role {role}: {difference}" if difference else f"same tools for role {role}"
