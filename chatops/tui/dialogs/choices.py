"""Rows of the pickers: roles, models, personas, themes, sessions, and the steps of a run."""

import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from textual.content import Content
from textual.widgets import Static

from chatops.domain.errors import ChatopsError
from chatops.domain.sanitize import sanitize
from chatops.domain.tools import BUILT_IN_TOOLS
from chatops.domain.wording import cut, plural
from chatops.engine.workflow.view import RunView, StepView
from chatops.tui.dialogs.picker import Choice, Picker, columns, table
from chatops.tui.keys import KeyHint
from chatops.tui.status.status_line import count
from chatops.tui.workflow import clock
from chatops.wiring.rows import ModelRow, RoleRow, RuleItem, SessionRow

if TYPE_CHECKING:
    from chatops.wiring.workspace import Workspace

_LONGEST_PREVIEW = 120
UNFOLD = "\n"
"""Key of the line in place of models that cannot be used; not a model's name."""
_BY_ROLE = Choice(key="", text="chosen by the role", find="role default", preview="Each role uses its own model.")
_LONGEST_LIST = 48


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
    texts = table([(row.name, abilities(row), row.model) for row in roles], most=(14, 40, 24)) if roles else []
    choices = [
        Choice(
            key=row.name,
            text=text,
            find=f"{row.name} {row.model} {' '.join(row.tools)}",
            preview=_role_preview(now, row, current=current),
            current=row.name == current,
        )
        for row, text in zip(roles, texts, strict=True)
    ]
    favourite = KeyHint(does="in the chat: the next favourite", id="next-role")
    hint = (KeyHint(does="from the next model call on"), favourite)
    return Picker("Role", choices=choices, hint=hint, empty="No role of that name.")


def abilities(row: RoleRow) -> str:
    """Return what the tools of a role can do, such as ``edits files, runs commands, web``."""
    if not row.tools:
        return "no tools"
    known = [BUILT_IN_TOOLS[tool] for tool in row.tools if tool in BUILT_IN_TOOLS]
    found = {
        "edits files": any(one.writes for one in known),
        "runs commands": any(one.runs_anything for one in known),
        "web": any(one.url for one in known) or "web_search" in row.tools,
        f"{len(row.tools) - len(known)} other": len(row.tools) > len(known),
    }
    able = [name for name, holds in found.items() if holds]
    reads = any(one.path and not one.writes for one in known) and not found["edits files"]
    return ", ".join(["reads files" if able else "only reads files", *able] if reads else able) or "notes only"


def _role_preview(now: RoleRow | None, row: RoleRow, *, current: str) -> str:
    tools = ", ".join(row.tools) or "no tools"
    if row.name == current:
        return f"current: {tools}"
    return f"{current} to {row.name}: {difference(now, row)}\nwould have: {tools}"


def name_picker(title: str, *, names: Sequence[str], current: str, moved: Callable[[str], str] | None = None) -> Picker:
    """Return a picker for plain names (personas, themes)."""
    choices = [Choice(key=name, text=name, find=name, current=name == current) for name in names]
    return Picker(title, choices=choices, empty="None of that name.", moved=moved)


def rule_picker(rules: Sequence[RuleItem]) -> Picker:
    """Return the picker for a remembered rule to revoke."""
    choices = [
        Choice(key=one.id, text=f"{one.id:>3}  {one.rule}", find=f"{one.rule} {one.about}", preview=one.about)
        for one in rules
    ]
    return Picker("Revoke a rule", choices=choices, empty="No rule matches." if rules else "No rule is remembered.")


def pending_picker(sessions: Sequence[SessionRow], *, current: str) -> Picker:
    """Return the picker for a session with something to decide, named by the calls that wait."""
    choices = [
        Choice(
            key=row.id,
            text=f"{columns((row.when, 16))} ? {'; '.join(row.asks) or 'a step to review'}   {row.title}",
            find=" ".join([row.title, row.id, row.state, row.run, *row.asks]),
            preview=_pending_preview(row, current=row.id == current),
            current=row.id == current,
        )
        for row in sessions
    ]
    return Picker("Pending", choices=choices, empty="No session matches.")


def _pending_preview(row: SessionRow, *, current: bool) -> str:
    facts = "   ".join(text for text in (row.id, row.role, "open now" if current else "") if text)
    return "\n".join(text for text in (row.title, facts, row.state, f"run, {row.run}" if row.run else "") if text)


def step_picker(view: RunView) -> Picker:
    """Return the picker for a step whose output is shown. The key is the step's index."""
    choices = [
        Choice(
            key=str(one.number - 1),
            text=columns((str(one.number), 2), (one.name, 16), (one.word or one.mark.value, 13), (_cost(one), 24)),
            find=one.name,
            preview=textwrap.shorten(one.refusal, _LONGEST_PREVIEW, placeholder=" …") or _checks(one),
            current=one.number - 1 == view.at,
        )
        for one in view.steps
    ]
    title = f"Steps of {sanitize(view.workflow, newlines=False)}"
    return Picker(title, choices=choices, hint=[KeyHint(does="shows its output")], empty="No step.")


def _cost(step: StepView) -> str:
    parts = [f"{count(step.tokens)} tokens"] if step.tokens is not None else []
    return ", ".join([*parts, clock(step.seconds)] if step.seconds is not None else parts)


def _checks(step: StepView) -> str:
    return ", ".join(f"{one.name}: {one.mark.value}" for one in (*step.validations, *step.gates))


class ModelPicker(Picker):
    """Pins a model. The first row leaves the choice to the role.

    The servers are asked while it is open. Models that cannot be used are one line at the end, until it is chosen.
    """

    def __init__(self, workspace: "Workspace", *, current: str) -> None:
        """List the models of the registry; the servers are asked once it is shown."""
        self._workspace = workspace
        self._model_in_force = current
        self._unfolded = False
        super().__init__("Model", choices=(), empty="No model of that name.")
        self._show(workspace.models())

    def on_mount(self) -> None:
        """Start asking the servers. The base class fills the list."""
        self._head("Model   (asking the servers …)")
        self.run_worker(self._ask(), group="servers")

    async def _ask(self) -> None:
        try:
            self._show(await self._workspace.models_of_servers())
        except ChatopsError as error:
            self.show_text(error.full)
        if self.is_attached:
            self._head("Model")
            self.refill()
            self.on_resize()

    def _head(self, title: str) -> None:
        self.query_one("#picker-title", Static).update(Content(title))

    def _show(self, rows: Sequence[ModelRow]) -> None:
        self.choices = (_BY_ROLE, *(_model_choice(row, current=self._model_in_force) for row in rows))
        folded = [row.name for row in rows if row.missing and row.name != self._model_in_force]
        kept = [choice for choice in self.choices if choice.key not in folded]
        if folded and not self._unfolded:
            names = cut(", ".join(folded), most=_LONGEST_LIST)
            text = f"{plural(len(folded), 'model')} not usable now: {names}"
            kept.append(Choice(key=UNFOLD, text=text, find="", preview="Enter lists them, each with the reason."))
            self._unfiltered = tuple(kept)

    def choose(self, key: str) -> None:
        """Close the picker with a model, or list those that cannot be used."""
        if key != UNFOLD:
            super().choose(key)
            return
        self._unfolded, self._unfiltered = True, ()
        self.refill()


def unusable_question(name: str, problem: str) -> Picker:
    """Return the question whether to use a model that will probably not answer. The key of no is empty."""
    keep = Choice(key="", text="Keep the model in use", find="keep", preview=problem)
    use = Choice(key=name, text=f"Use {name} all the same", find="use", preview=problem)
    return Picker(f"{name} will probably not answer", choices=(keep, use))


def _model_choice(row: ModelRow, *, current: str) -> Choice:
    return Choice(
        key=row.name,
        text=columns((row.name, 24), (row.label, 34), ("not usable now" if row.missing else row.note, 24)),
        find=f"{row.name} {row.label}",
        preview=row.missing or "Every role uses it until you choose again.",
        current=row.name == current,
    )
