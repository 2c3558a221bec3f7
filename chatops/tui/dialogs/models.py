"""The picker for models: those of the registry, and the others that their servers list."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.content import Content
from textual.widgets import Static

from chatops.domain.errors import ChatopsError
from chatops.domain.wording import cut, plural
from chatops.tui.dialogs.picker import Choice, Picker, columns
from chatops.wiring.rows import ModelRow

if TYPE_CHECKING:
    from chatops.wiring.workspace import Workspace

UNFOLD = "\n"
"""Key of the line in place of models that cannot be used; not a model's name."""
_BY_ROLE = Choice(key="", text="chosen by the role", find="role default", preview="Each role uses its own model.")
_LONGEST_LIST = 48


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
        self.choices = (_BY_ROLE, *(_choice(row, current=self._model_in_force) for row in rows))
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


def _choice(row: ModelRow, *, current: str) -> Choice:
    return Choice(
        key=row.name,
        text=columns((row.name, 24), (row.label, 34), ("not usable now" if row.missing else row.note, 24)),
        find=f"{row.name} {row.label}",
        preview=row.missing or "Every role uses it until you choose again.",
        current=row.name == current,
    )
