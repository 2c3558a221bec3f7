"""The pickers: roles, models, personas, themes, sessions with their texts, and the steps of a run."""

import asyncio
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from textual import on
from textual.widgets import Input

from chatops.domain.errors import ChatopsError
from chatops.domain.ids import SessionId
from chatops.domain.sanitize import sanitize
from chatops.domain.wording import clauses, cut, excerpt, plural
from chatops.engine.workflow.view import RunView, StepView
from chatops.runtime.session import owned
from chatops.tui.dialogs.modal import Legend, Title
from chatops.tui.dialogs.picker import Choice, Picker, columns, table
from chatops.tui.dialogs.question import Question
from chatops.tui.keys import KeyHint
from chatops.tui.notice import show_notice
from chatops.tui.status import count
from chatops.tui.workflow import clock
from chatops.wiring.rows import ModelRow, RoleRow, RuleItem, SessionRow, first_source
from chatops.wiring.sessions import changed_at_words

if TYPE_CHECKING:
    from chatops.runtime.view import SessionView
    from chatops.wiring.jobs import Job
    from chatops.wiring.sessions import SessionList
    from chatops.wiring.workspace import Workspace

_LONGEST_REFUSAL = 120
"""Characters of the reason why a step was refused."""
UNFOLD = "\n"
"""Key of the line in place of models that cannot be used; not a model's name."""
_BY_ROLE = Choice(key="", text="chosen by the role", find="role default", preview="Each role uses its own model.")
_NOT_SET_UP = "Nobody has set it up, and its server has not answered yet."
"""Stands for what a model lacks before its server was asked."""
_LONGEST_NAMES = 48
"""Characters of the names in the line in place of models that cannot be used."""
_SEARCH_AFTER_S = 0.2
"""Seconds without a key after which the texts of sessions are searched."""
_MIN_SEARCHED = 3
"""Characters from which on texts are searched."""
_EXCERPT_AROUND = 60
"""Characters shown on each side of a text that was found."""
_TALL_PREVIEW, _LOW_PREVIEW, _MIN_HEIGHT_FOR_TALL = 8, 4, 24
"""Lines of the preview in a window of at least `_MIN_HEIGHT_FOR_TALL` lines, and in a lower one."""

SESSION_KEYS = (KeyHint("ctrl+n", "rename"), KeyHint("ctrl+d", "delete"))
_KEYS_TO_CONFIRM = (KeyHint("ctrl+d", "again deletes it"), KeyHint("escape", "keeps it"))

_RIGHTS_WIDTH = 64
"""Characters for what a role may do: a dialog in 80 columns shows them beside its name."""


def tools_difference(before: RoleRow | None, after: RoleRow) -> str:
    """Return the tools the model gains and loses, in one line such as ``+ web_search − shell_exec``."""
    old = set(before.tools) if before else set()
    new = set(after.tools)
    parts = [f"+ {tool}" for tool in after.tools if tool not in old]
    parts += [f"− {tool}" for tool in (before.tools if before else ()) if tool not in new]
    return " ".join(parts) or "the same tools"


def role_picker(roles: Sequence[RoleRow], *, current: str) -> Picker:
    """Return the picker for the role that applies from the next model call on."""
    in_force = next((row for row in roles if row.name == current), None)
    texts = (
        table([(row.name, clauses(row.rights, most=_RIGHTS_WIDTH)) for row in roles], most=(14, _RIGHTS_WIDTH))
        if roles
        else []
    )
    choices = [
        Choice(
            key=row.name,
            text=text,
            find=f"{row.name} {row.model} {' '.join(row.tools)}",
            preview=_role_preview(in_force, row, current=current),
            current=row.name == current,
            role=row.name,
        )
        for row, text in zip(roles, texts, strict=True)
    ]
    favourite = KeyHint(does="in the chat: the next favourite", id="next-role")
    hint = (KeyHint(does="from the next model call on"), favourite)
    return Picker("Role", choices=choices, hint=hint, empty="No role of that name.")


def _role_preview(in_force: RoleRow | None, row: RoleRow, *, current: str) -> str:
    model = f"model {row.model}" if row.model else row.description
    if row.name == current:
        return f"in force · {model}\n{', '.join(row.tools) or 'no tools'}"
    return f"{current} to {row.name}: {tools_difference(in_force, row)}\n{model}"


def name_picker(
    title: str, *, names: Sequence[tuple[str, str]], current: str, on_move: Callable[[str], str] | None = None
) -> Picker:
    """Return a picker for names (personas, themes), each with its description or none."""
    texts = table(names, most=(24, _RIGHTS_WIDTH)) if names else []
    choices = [
        # A description that the row shows whole is not shown again below.
        Choice(
            key=name,
            text=text,
            find=f"{name} {about}",
            preview="" if text.endswith(about) else about,
            current=name == current,
        )
        for (name, about), text in zip(names, texts, strict=True)
    ]
    return Picker(title, choices=choices, empty="None of that name.", on_move=on_move)


def rule_picker(rules: Sequence[RuleItem]) -> Picker:
    """Return the picker for a remembered rule to revoke."""
    choices = [
        Choice(key=rule.id, text=f"{rule.id:>3}  {rule.rule}", find=f"{rule.rule} {rule.about}", preview=rule.about)
        for rule in rules
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


def job_picker(jobs: "Sequence[Job]", *, current: str) -> Picker:
    """Return the picker for a job to open."""
    choices = [
        Choice(
            key=job.id,
            text=f"{columns((changed_at_words(job.row.session), 16), (job.state.value, 20)):<38}  {job.title}",
            find=" ".join([job.title, job.id, job.state.value, job.about]),
            preview="\n".join(filter(None, (job.title, f"{job.id}   {job.row.session.role}", job.folder, job.about))),
            current=job.id == current,
        )
        for job in jobs
    ]
    return Picker("Jobs", choices=choices, empty="No job matches.")


def _pending_preview(row: SessionRow, *, current: bool) -> str:
    facts = "   ".join(text for text in (row.id, row.role, "open now" if current else "") if text)
    return "\n".join(text for text in (row.title, facts, row.state, f"run, {row.run}" if row.run else "") if text)


def step_picker(view: RunView) -> Picker:
    """Return the picker for a step whose output is shown. The key is the step's index."""
    choices = [
        Choice(
            key=str(step.number - 1),
            text=columns(
                (str(step.number), 2), (step.name, 16), (step.word or step.mark.value, 13), (_step_cost(step), 24)
            ),
            find=step.name,
            preview=textwrap.shorten(step.refusal, _LONGEST_REFUSAL, placeholder=" …")
            or ", ".join(f"{check.name}: {check.mark.value}" for check in (*step.validations, *step.gates)),
            current=step.number - 1 == view.at,
        )
        for step in view.steps
    ]
    title = f"Steps of {sanitize(view.workflow, newlines=False)}"
    return Picker(title, choices=choices, hint=[KeyHint(does="shows its output")], empty="No step.")


def _step_cost(step: StepView) -> str:
    parts = [f"{count(step.tokens)} tokens"] if step.tokens is not None else []
    return ", ".join([*parts, clock(step.seconds)] if step.seconds is not None else parts)


class ModelPicker(Picker):
    """Pins a model. The first row leaves the choice to the role.

    The servers are asked while it is open. No row moves when they answer: models that answer and were not listed come
    below the others, and one that does not answer is marked. Models that nobody has set up, or that cannot be used, are
    one line at the end, until it is chosen.
    """

    def __init__(self, workspace: "Workspace", *, current: str, wanted: str = "") -> None:
        """List the models of the registry, filtered by `wanted`; the servers are asked once it is shown."""
        self._workspace = workspace
        self._model_in_force = current
        self._listed: list[str] = []
        """The models that have a row, in the order of the rows."""
        self.only_here = False
        """True if the chosen model does not become the default."""
        hint = [KeyHint("ctrl+s", "chooses, not as default")]
        super().__init__("Model", choices=(), hint=hint, empty="No model of that name.", wanted=wanted)
        self._show([row if row.is_set_up else replace(row, missing=_NOT_SET_UP) for row in workspace.models()])

    @property
    def row_keys(self) -> Mapping[str, Callable[[], None]]:
        """Actions on the highlighted row, by their keys."""
        return {**super().row_keys, "ctrl+s": self.take_here}

    def on_mount(self) -> None:
        """Start asking the servers. The base class fills the list."""
        self.query_one(Title).show("Model", "asking the servers …")
        self.run_worker(self._ask(), group="servers")

    async def _ask(self) -> None:
        try:
            self._show(await self._workspace.models_of_servers())
        except ChatopsError as error:
            self.show_text(error.full)
        if self.is_attached:
            self.query_one(Title).show("Model")
            self.refill()
            self.on_resize()

    def take_here(self) -> None:
        """Choose the highlighted model without making it the default (ctrl+s)."""
        if (choice := self.highlighted_choice) is not None and choice.key != UNFOLD:
            self.only_here = True
            self.choose(choice.key)

    def _show(self, rows: Sequence[ModelRow]) -> None:
        choices = {row.name: _model_choice(row, current=self._model_in_force) for row in rows}
        usable = (row.name for row in rows if not row.missing or row.name == self._model_in_force)
        self._listed = [name for name in dict.fromkeys((*self._listed, *usable)) if name in choices]
        folded = [name for name in choices if name not in self._listed]
        kept = (_BY_ROLE, *(choices[name] for name in self._listed))
        self.choices, self._unfiltered = (*kept, *(choices[name] for name in folded)), ()
        if folded:
            names = cut(", ".join(folded), most=_LONGEST_NAMES)
            text = f"{plural(len(folded), 'more model')}: {names}"
            unfold = Choice(key=UNFOLD, text=text, find="", preview="Enter lists them, each with what it lacks.")
            self._unfiltered = (*kept, unfold)

    def choose(self, key: str) -> None:
        """Close the picker with a model, or list those that cannot be used."""
        if key != UNFOLD:
            super().choose(key)
            return
        self._listed, self._unfiltered = [choice.key for choice in self.choices[1:]], ()
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
        preview=row.missing or "Enter makes it the default of your other sessions too.",
        current=row.name == current,
    )


class SessionPicker(Picker):
    """Lists sessions. The result is the id of the chosen one."""

    def __init__(
        self, rows: Sequence[SessionRow], *, session: "SessionView", sessions: "SessionList", wanted: str = ""
    ) -> None:
        """List `rows`, filtered by `wanted`. `session` is the open one, which cannot be deleted."""
        self._rows = {row.id: row for row in rows}
        self._open = session
        self._sessions = sessions
        self._last_said: dict[str, Sequence[str]] = {}
        """The last question and answer of sessions whose preview was shown."""
        self.found: dict[str, str] = {}
        """The newest message with the text `searched`, by session."""
        self.searched = ""
        """The text of the filter that messages were searched for last."""
        self._to_delete = ""
        """The session that is deleted when ctrl+d is pressed again; empty if none."""
        empty = "No session of this folder matches.\nIn all folders: /search --all WORDS"
        super().__init__("Sessions", choices=self._listed(), hint=SESSION_KEYS, empty=empty, wanted=wanted)

    @property
    def row_keys(self) -> Mapping[str, Callable[[], None]]:
        """Actions on the highlighted row, by their keys."""
        return {**super().row_keys, "ctrl+n": self.rename, "ctrl+d": self.delete}

    def _listed(self) -> list[Choice]:
        return [self._choice(row) for row in below_origins(tuple(self._rows.values()))]

    def _choice(self, row: SessionRow) -> Choice:
        sign = "?" if row.asks else "…" if row.state or row.pending else "↳" if row.copy_of else " "
        filtered = [row.title, row.id, row.role, "pending" if row.pending else "", row.state, row.run, *row.asks]
        asks = f"   ? {'; '.join(row.asks)}" if row.asks else ""
        return Choice(
            key=row.id,
            text=f"{columns((row.when, 16))} {sign} {row.title}{asks}".rstrip(),
            find=" ".join(filtered),
            current=row.id == self._open.session_id,
        )

    @property
    def start(self) -> str:
        """The session used last, which is a copy below its origin where a turn was taken back."""
        return next(iter(self._rows), "")

    # Preview

    @property
    def preview_lines(self) -> int:
        """The height for a session with all its facts and its last answer, where that leaves room for the list."""
        return _TALL_PREVIEW if self.size.height >= _MIN_HEIGHT_FOR_TALL else _LOW_PREVIEW

    def describe(self, choice: Choice) -> str:
        """Return title, facts, and the last question and answer; these are loaded once they are needed."""
        self._ask_about("")
        row = self._rows[SessionId(choice.key)]
        if choice.key not in self._last_said:
            self._last_said[choice.key] = ()
            self.run_worker(self._load(row.id), group=f"preview {row.id}")
        facts = [row.id, row.role, plural(row.messages, "message"), "open now" if choice.current else ""]
        lines = [row.title, "   ".join(fact for fact in (*facts, f"run, {row.run}" if row.run else "") if fact)]
        lines += [f"copy of {row.copy_of}"] if row.copy_of else []
        waits = f"pending: {'; '.join(row.asks)}" if row.asks else row.state
        lines += [waits] if waits else []
        if (text := self.found.get(choice.key)) is not None:
            return "\n".join([*lines, f"found: {excerpt(text, self.searched, around=_EXCERPT_AROUND)}"])
        return "\n".join([*lines, *self._last_said[choice.key]])

    async def _load(self, session_id: SessionId) -> None:
        try:
            self._last_said[session_id] = await self._sessions.last_said(session_id)
        except ChatopsError as error:
            self._last_said[session_id] = [str(error)]
        if not self._to_delete:
            self.show_preview()

    # Filter

    @on(Input.Changed)
    def look_into_texts(self, event: Input.Changed) -> None:
        """Also list the sessions in which the text was said."""
        self.found = {}
        self.run_worker(self._search_texts(event.value.strip()), group="search", exclusive=True)

    async def _search_texts(self, wanted: str) -> None:
        if len(wanted) < _MIN_SEARCHED:
            return
        await asyncio.sleep(_SEARCH_AFTER_S)
        try:
            hits = await self._sessions.search(wanted)
        except ChatopsError as error:
            show_notice(self.app, error.full)
            return
        for hit in hits:
            if hit.session_id in self._rows:
                self.found.setdefault(hit.session_id, hit.text)
        self.searched = wanted
        self.refill()

    def matching(self, wanted: str) -> list[Choice]:
        """Return the sessions with the words in title, facts or messages, the latest first."""
        matching = {choice.key for choice in super().matching(wanted)} | {*self.found}
        return [choice for choice in self.choices if choice.key in matching]

    # Rename and delete

    def rename(self) -> None:
        """Ask for another title of the highlighted session (ctrl+n)."""
        if (choice := self.highlighted_choice) is None:
            return
        row = self._rows[SessionId(choice.key)]

        def answered(title: str | None) -> None:
            if title is not None:
                self.run_worker(self._rename(row, title), group="rename")

        question = Question(
            "Rename the session", explain=row.id, text=row.title, check=_check_title, done="renames", enter_answers=True
        )
        self.app.push_screen(question, answered)

    async def _rename(self, row: SessionRow, title: str) -> None:
        try:
            if row.id == self._open.session_id:
                await owned(self._open, "The session was not renamed").rename(title)
            else:
                await self._sessions.rename(row.id, title)
        except ChatopsError as error:
            show_notice(self.app, error.full)
            return
        self._rows[row.id] = replace(row, title=title)
        self.choices = tuple(self._listed())
        self.refill()

    def delete(self) -> None:
        """Ask whether to delete the highlighted session (ctrl+d). A second time, delete it."""
        if (choice := self.highlighted_choice) is None:
            return
        row = self._rows[SessionId(choice.key)]
        if choice.current:
            self.show_text("This session is open. Open another one to delete it.")
        elif self._to_delete == choice.key:
            self._ask_about("")
            self.run_worker(self._delete(row), group="delete")
        else:
            self._ask_about(choice.key)
            unfinished = ", an unfinished turn" if row.state else ""
            lost = f", {plural(row.pending, 'pending call')}" if row.pending else unfinished
            what = f"Delete this session for good ({plural(row.messages, 'message')}{lost})?"
            self.show_text(f"{what}\n{row.title}")

    def _ask_about(self, key: str) -> None:
        """Note which session ctrl+d deletes next (empty: none), and show the keys for that."""
        self._to_delete = key
        self.query_one(Legend).show(*(_KEYS_TO_CONFIRM if key else self.keys))

    def go_back(self) -> None:
        """Handle Esc: close the question whether to delete a session, or else the picker."""
        if self._to_delete:
            self.show_preview()
        else:
            super().go_back()

    def choose(self, key: str) -> None:
        """Choose a row (Enter), unless the picker asks whether to delete it."""
        if not self._to_delete:
            super().choose(key)

    async def _delete(self, row: SessionRow) -> None:
        try:
            await self._sessions.delete(row.id)
        except ChatopsError as error:
            self.show_text(error.full)
            return
        del self._rows[row.id]
        self.choices = tuple(self._listed())
        self.refill()


def below_origins(rows: Sequence[SessionRow]) -> list[SessionRow]:
    """Return `rows`, newest first, with the copies of a session right below it, at the place of the newest of them."""
    versions: dict[str, list[SessionRow]] = {}
    sources = {str(row.id): row.source for row in rows}
    for row in rows:
        versions.setdefault(first_source(row, sources), []).append(row)
    return [row for same in versions.values() for row in sorted(same, key=lambda row: bool(row.source))]


def _check_title(title: str) -> str:
    if not title.strip():
        raise ValueError("A title has to say something. Esc goes back.")
    return " ".join(title.split())
