"""A registry that has changed, in words for whoever is in a conversation under it."""

from chatops.domain.errors import ConfigError
from chatops.policy.grant import Grant, tool_difference
from chatops.runtime.rights import Rights
from chatops.runtime.standing import Standing


def told_of_change(
    standing: Standing, before: Grant, now: Grant, *, replaced: tuple[Standing, Grant] | None, rights: Rights
) -> tuple[str, ...]:
    """What is said when a file has changed, or was put in force; nothing if it means nothing for this role.

    `before` lacks already what the file had taken away; `replaced`: what was in force then, and for which standing.
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
    lost = tool_difference(*change)[1]
    waits = "What it takes away is gone; /reload puts the rest in force." if lost else "/reload puts it in force."
    return f"The registry has changed ({difference(*change)}). {waits}"


def difference(before: Grant, after: Grant) -> str:
    """Tools that come and go, and another model, as in ``for role coder: + web_fetch − shell_exec, model a → b``."""
    gained, lost = tool_difference(before, after)
    tools = " ".join([*(f"+ {name}" for name in gained), *(f"− {name}" for name in lost)])
    said = [f"for role {after.role}: {tools}" if tools else f"same tools for role {after.role}"]
    old, new = before.models[0].name, after.models[0].name
    return ", ".join([*said, *([f"model {old} → {new}"] if old != new else [])])
