"""The role switcher: what each role may use here, and what switching to it would change."""

from collections.abc import Sequence

from chatops.tui.host import ModelRow, RoleRow
from chatops.tui.screens.picker import Choice, Picker, columns


def difference(before: RoleRow | None, after: RoleRow) -> str:
    """What the model gains and loses in tools, in one line such as ``+ web_search − shell_exec``."""
    old = set(before.tools) if before else set()
    new = set(after.tools)
    parts = [f"+ {tool}" for tool in after.tools if tool not in old]
    parts += [f"− {tool}" for tool in (before.tools if before else ()) if tool not in new]
    return " ".join(parts) or "the same tools"


def role_picker(roles: Sequence[RoleRow], *, current: str) -> Picker:
    """Choose the role that is in force from the next model call on."""
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
    """Pin a model until it is changed again; the first row lets the role choose."""
    return Picker("Model", choices=model_choices(models, current=current), empty="No model of that name.")


def model_choices(models: Sequence[ModelRow], *, current: str) -> list[Choice]:
    """The rows of `model_picker`; a model that can answer nobody here is marked."""
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
    """Choose among plain names (personas, themes)."""
    choices = [Choice(key=name, text=name, find=name, current=name == current) for name in names]
    return Picker(title, choices=choices, empty="None of that name.")
