"""What each role may do as a matrix of tools and roles. The cell under the cursor explains itself."""

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.coordinate import Coordinate
from textual.widgets import DataTable

from chatops.domain.sanitize import sanitize
from chatops.domain.tools import Verdict
from chatops.domain.wording import cut, plural
from chatops.tui.dialogs.modal import TALL, KeyUse, Legend, Page, Title
from chatops.tui.dialogs.text import HangingText
from chatops.tui.keys import BACK, KeyHint
from chatops.tui.notice import copy
from chatops.tui.theme import theme_of

if TYPE_CHECKING:
    from chatops.wiring.explain import RightsMatrix

_LONGEST_NAME = 28
"""Characters of a tool's name in its row. The explanation has all of it."""
_LONGEST_ROLE = 14
_LINES_AROUND = 13
"""Lines of the window outside the matrix; the explanation has 7 of them, see dialogs.tcss."""
_ABOUT_ONE_CALL = "The verdict on one call: /policy TOOL JSON"


class RightsScreen(Page):
    """Shows the verdict on each tool in each role, and below them why the chosen one is so."""

    CSS_PATH = "dialogs.tcss"
    AUTO_FOCUS = "#rights-table"
    _MOVES: ClassVar[dict[str, Callable[[DataTable[Text]], None]]] = {
        "j": lambda table: table.action_cursor_down(),
        "k": lambda table: table.action_cursor_up(),
        "l": lambda table: table.action_cursor_right(),
        "h": lambda table: table.action_cursor_left(),
        "g": lambda table: table.move_cursor(row=0),
        "G": lambda table: table.move_cursor(row=table.row_count - 1),
    }

    def __init__(self, rights: "RightsMatrix") -> None:
        super().__init__()
        self._rights = rights
        self._roles = tuple(rights.grants)

    def compose(self) -> ComposeResult:
        """Yield heading, matrix, explanation and keys."""
        heading = f"What roles may do at your access level {self._rights.level}"
        more = f"{plural(self._rights.left_out, 'more role')}: chatops roles list" if self._rights.left_out else ""
        with Vertical(id="rights"):
            yield Title(heading, more)
            yield DataTable(id="rights-table", fixed_columns=1, cell_padding=1)
            yield HangingText("", id="rights-why")
            yield Legend(BACK, KeyHint("h j k l, arrows", "choose"), KeyHint("y", "copy"), id="rights-keys")

    def on_mount(self) -> None:
        """Draw in the colours of the theme, also when it is changed."""
        self._draw()
        self.app.theme_changed_signal.subscribe(self, lambda _: self._draw())

    def on_resize(self) -> None:
        """Limit the height of the matrix, so that explanation and keys stay on screen."""
        tall = self.size.height >= TALL
        self.query_one(DataTable).styles.max_height = self.size.height - _LINES_AROUND if tall else None

    def _draw(self) -> None:
        """Fill the matrix. The cursor stays where it is."""
        table, theme = self.query_one(DataTable[Text]), theme_of(self.app)
        at = table.cursor_coordinate if table.row_count else Coordinate(0, 1)
        words = {
            Verdict.ALLOW: Text("allow", style=theme.good),
            Verdict.ASK: Text("ask", style=theme.warn),
            Verdict.DENY: Text("deny", style=theme.muted),
            None: Text("error", style=theme.bad),
        }
        colours = getattr(self.app, "role_colours", {})
        table.clear(columns=True)
        table.add_column(Text("tool"))
        for role in self._roles:
            name = cut(sanitize(role, newlines=False), most=_LONGEST_ROLE)
            table.add_column(Text(f"*{name}" if role == self._rights.role else name, style=colours.get(role, "")))
        for tool in self._rights.tools:
            label = Text(cut(sanitize(tool, newlines=False), most=_LONGEST_NAME))
            table.add_row(label, *(words[self._rights.verdict(tool, role)] for role in self._roles))
        table.move_cursor(row=at.row, column=max(1, at.column))

    @on(DataTable.CellHighlighted)
    def explain(self) -> None:
        """Explain the cell under the cursor; in the column of names, the role in force."""
        table = self.query_one(DataTable[Text])
        if table.cursor_column == 0:
            table.move_cursor(column=1)
            return
        self.query_one("#rights-why", HangingText).show(self._explanation)

    @property
    def _explanation(self) -> str:
        at = self.query_one(DataTable[Text]).cursor_coordinate
        lines = self._rights.explain(self._rights.tools[at.row], self._roles[at.column - 1])
        return sanitize("\n".join([*lines, _ABOUT_ONE_CALL]))

    def act_on_key(self, key: str) -> KeyUse:
        """Move or copy."""
        if key == "y":
            copy(self.app, self._explanation, "this explanation")
        elif key in self._MOVES:
            self._MOVES[key](self.query_one(DataTable[Text]))
        return KeyUse.ACTS if key == "y" or key in self._MOVES else KeyUse.UNKNOWN
