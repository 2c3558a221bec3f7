"""Pickers for roles, models, personas and themes. The role picker shows what switching would change."""

from collections.abc import Sequence

from chatops.tui.dialogs.picker import Choice, Picker, columns
from chatops.tui.host import ModelRow, RoleRow


def difference(before: RoleRow | None, after: RoleRow) -> str:
    """Return the tools the model gains and loses, in one line such as ``+ web_search − shell_exec``."""
    old = set(before.tools) if before else set()
    new = set(after.tools)
    parts = [f"+ {tool}" for tool in after.tools if tool not in old]
    parts += [f"− {tool}" for tool in (before.tools if before else ()) if tool not in new]
    return " ".join(parts) or "the same tools"


def role_picker(roles: Sequence[RoleRow], *, current: str) -> Picker:
    """Return the picker for the role that applies from the next model call on."""
    now = next((row for row in roles if row.name == current), None)
    choices = [
        Choice(
            key=row.name,
            text=columns((row.name, 14), (row.model, 20), (", ".join(row.tools) or "no tools", 60)),
            find=f"{row.name} {row.model} {' '.join(row.tools)}",
            preview=_preview(now, row, current=current),
            current=row.name == current,
        )
        for row in roles
    ]
    return Picker("Role", choices=choices, hint="from the next model call on", empty="No role of that name.")


def _preview(now: RoleRow | None, row: RoleRow, *, current: str) -> str:
    tools = ", ".join(row.tools) or "no tools"
    if row.name == current:
        return f"in force: {tools}"
    return f"{current} to {row.name}: {difference(now, row)}\nwould have: {tools}"


def model_picker(models: Sequence[ModelRow], *, current: str) -> Picker:
    """Return the picker that pins a model. The first row leaves the choice to the role."""
    return Picker("Model", choices=model_choices(models, current=current), empty="No model of that name.")


def model_choices(models: Sequence[ModelRow], *, current: str) -> list[Choice]:
    """Return the rows of `model_picker`. A model that is not available here is marked."""
    by_role = Choice(key="", text="as the role says", find="role default", preview="Each role uses its own model.")
    return [by_role, *(_model(row, current=current) for row in models)]


def _model(row: ModelRow, *, current: str) -> Choice:
    return Choice(
        key=row.name,
        text=columns((row.name, 16), (row.label, 34), ("not available here" if row.missing else row.note, 24)),
        find=f"{row.name} {row.label}",
        preview=row.missing or "Every role uses it until you choose again.",
        current=row.name == current,
    )


def name_picker(title: str, *, names: Sequence[str], current: str) -> Picker:
    """Return a picker for plain names (personas, themes)."""
    choices = [Choice(key=name, text=name, find=name, current=name == current) for name in names]
    return Picker(title, choices=choices, empty="None of that name.")
