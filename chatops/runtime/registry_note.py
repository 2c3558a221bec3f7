"""Sentences about a changed registry, for the users of the sessions under it."""

from chatops.domain.errors import ConfigError
from chatops.policy.grant import Grant, tool_difference
from chatops.runtime.rights import Rights
from chatops.runtime.standing import Standing


def told_of_change(
    standing: Standing, before: Grant, now: Grant, *, replaced: tuple[Standing, Grant] | None, rights: Rights
) -> tuple[str, ...]:
    """Return the notices for a changed or reloaded registry file; none if it does not affect this role.

    `before` already lacks what the changed file took away. `replaced` is the grant of the registry that was in force,
    with the settings that it was made for.
    """
    note = note_on_change(standing, rights=rights)
    if note:
        return (note,)
    whole = [grant for of, grant in (replaced,) if of == standing] if replaced is not None else []
    for then in (*whole, before):
        if (then.layers, then.answers, then.models) != (now.layers, now.answers, now.models):
            return (f"The registry as it is now is in force ({difference(then, now)}).",)
    return ()


def note_on_registry(standing: Standing, *, rights: Rights) -> str:
    """Return what stays true of the registry until the user acts: the file is broken, or has changed."""
    return rights.broken() or note_on_change(standing, rights=rights)


def note_on_change(standing: Standing, *, rights: Rights) -> str:
    """Return how a changed file that is not in force differs for this role; empty if it does not.

    The text also says what that means for the user.
    """
    try:
        change = standing.change(rights)
    except ConfigError as error:
        return f"The registry has changed: {error} Nothing of this role is permitted until it is there again."
    if change is None:
        return ""
    lost = tool_difference(*change)[1]
    waits = "What it takes away is gone; /reload puts the rest in force." if lost else "/reload puts it in force."
    return f"The registry has changed ({difference(*change)}). {waits}"


def difference(before: Grant, after: Grant) -> str:
    """Return added and removed tools and a new model: ``for role coder: + web_fetch − shell_exec, model a → b``."""
    gained, lost = tool_difference(before, after)
    tools = " ".join([*(f"+ {name}" for name in gained), *(f"− {name}" for name in lost)])
    said = [f"for role {after.role}: {tools}" if tools else f"same tools for role {after.role}"]
    old, new = before.models[0].name, after.models[0].name
    return ", ".join([*said, *([f"model {old} → {new}"] if old != new else [])])
