"""The ``/workflow`` command: offers workflows and runs, and controls the run of the open session."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from chatops.domain.errors import ChatopsError, ConfigError
from chatops.domain.ids import SessionId
from chatops.domain.sanitize import sanitize
from chatops.tui.commands.replies import (
    Choose,
    Context,
    Notify,
    Replies,
    ScreenAction,
    ShowSession,
    ShowStep,
    ShowText,
    Write,
)
from chatops.tui.composer import Completion
from chatops.tui.dialogs.picker import Choice, Picker, table
from chatops.wiring.rows import RunRow, WorkflowRow

if TYPE_CHECKING:
    from chatops.runtime.view import SessionView
    from chatops.runtime.workflow import WorkflowRun

VERBS = {
    "run ": "start a workflow in a session of its own",
    "show ": "show the output of a step",
    "resume ": "resume a run",
    "cancel ": "cancel this run",
}
_NONE_DEFINED = "None is defined. Define one under workflows in the registry, or as a file beside it."
_WIDTHS = (24, 64)
"""Cells of the name of a workflow and of its steps, which a dialog in 80 columns shows beside it."""
_NO_RUN = "This session is not a workflow run. /workflow lists workflows and runs."
_RUNS_ELSEWHERE = "This run is followed read-only. /takeover takes it over."


async def workflow(context: Context, argument: str) -> Replies:
    """Do what the first word says. Without one, let the user choose a workflow, or a run to resume."""
    verb, rest = _split_first_word(argument)
    match verb:
        case "":
            runs = context.workspace.runs
            return (_choose({row.name: row for row in await runs.workflows()}, await runs.unfinished()),)
        case "run":
            return await _run_workflow(context, rest)
        case "show":
            return _show_step(context, rest)
        case "resume":
            return await _resume_run(context, rest)
        case "cancel":
            return await _cancel_run(context, rest)
        case _:
            known = ", ".join(map(str.rstrip, VERBS))
            raise ConfigError(f"/workflow knows {known}, and not {verb!r}.", advice="/workflow lists them.")


def _choose(workflows: Mapping[str, WorkflowRow], runs: Sequence[RunRow]) -> Choose:
    """Offer to write the command that runs a workflow, or to resume a run."""

    async def chosen(context: Context, key: str) -> Replies:
        verb, name = _split_first_word(key)
        if verb == "resume":
            return await _resume_run(context, name)
        if problem := workflows[name].problem:
            return (ShowText(f"Workflow {name} cannot run", problem),)
        return (Write(f"/workflow {key} "),)

    rows = [
        (
            f"run {row.name}",
            (row.name, "cannot be used" if row.problem else " → ".join(row.steps)),
            row.problem or row.description,
        )
        for row in workflows.values()
    ]
    rows += [(f"resume {run.id}", ("resume", run.title), f"{run.state}, {run.when}\n{run.id}") for run in runs]
    texts = table([cells for _, cells, _ in rows], most=_WIDTHS) if rows else []
    choices = [
        Choice(key=key, text=text, find=" ".join(cells), preview=preview)
        for (key, cells, preview), text in zip(rows, texts, strict=True)
    ]
    return Choose(Picker("Workflows", choices=choices, empty=_NONE_DEFINED), chosen)


async def offers(context: Context, before: tuple[str, ...]) -> Sequence[Completion]:
    """Return completions for the word after the verb. `before` starts with the command itself."""
    match before:
        case (_, "run"):
            rows = [row for row in await context.workspace.runs.workflows() if not row.problem]
            return [_completion(row.name, f"{row.name} ", row.description) for row in rows]
        case (_, "resume"):
            runs = await context.workspace.runs.unfinished()
            return [_completion(row.id, row.id, f"{row.title}  {row.state}") for row in runs]
        case (_, "show") if context.steps is not None:
            return [_completion(name, name, "") for name in context.steps]
        case _:
            return []


def _completion(text: str, insert: str, note: str) -> Completion:
    return Completion(insert=insert, text=sanitize(text, newlines=False), note=sanitize(note, newlines=False))


async def _run_workflow(context: Context, rest: str) -> Replies:
    name, query = _split_first_word(rest)
    if not name or not query:
        raise ConfigError("Name a workflow and what it should do: /workflow run NAME QUERY")
    before = context.session.snapshot().session_id
    warnings: list[str] = []
    try:
        session = await context.workspace.runs.new(name, query=query, beside=context.session, warn=warnings.append)
    except ConfigError as error:
        if "\n" not in str(error):
            raise
        return (ShowText(f"Workflow {name} cannot run", f"{error}\n\n{error.advice}"), ScreenAction.GIVE_BACK)

    async def opened() -> "SessionView":
        return session

    previous = [Notify(f"The previous session is kept: /resume {before}")] if before else []
    return (*map(Notify, warnings), ShowSession(opened), *previous)


def _show_step(context: Context, rest: str) -> Replies:
    names = context.steps
    if names is None:
        raise ChatopsError(_NO_RUN)
    if not rest:
        return (ScreenAction.STEPS,)
    if rest in names:
        return (ShowStep(names.index(rest)),)
    if rest.isdecimal() and 1 <= int(rest) <= len(names):
        return (ShowStep(int(rest) - 1),)
    raise ConfigError(f"This run has no step {rest!r}.", advice=f"Its steps: {', '.join(names)}.")


async def _resume_run(context: Context, rest: str) -> Replies:
    run, workspace = context.run, context.workspace
    if not rest and run is not None and not run.over:
        return await _resume_open(run)
    if not rest:
        unfinished = await workspace.runs.unfinished()
        if not unfinished:
            raise ConfigError("This workspace has no unfinished run.", advice="/workflow lists the workflows.")
        rest = unfinished[0].id
    return (ShowSession(lambda: workspace.sessions.open(SessionId(rest))),)


async def _resume_open(run: "WorkflowRun") -> Replies:
    """Continue a run that is open already: retry after an error, or open its pending review or approval."""
    if run.blocked_by is not None:
        await run.retry()
        return ()
    if run.pending_review is not None or run.session.snapshot().pending:
        return (ScreenAction.DECIDE,)
    return (Notify("The run is already in progress."),)


async def _cancel_run(context: Context, rest: str) -> Replies:
    run = context.run
    if run is None:
        raise ChatopsError(_NO_RUN if context.steps is None else _RUNS_ELSEWHERE)
    if rest and rest != run.run_id:
        raise ConfigError(
            "/workflow cancel ends the run that is open.", advice=f"Open it first: /workflow resume {rest}"
        )
    return () if await run.cancel() else (Notify("This run has already ended."),)


def _split_first_word(text: str) -> tuple[str, str]:
    words = text.split(maxsplit=1)
    return (words[0] if words else "", words[1].strip() if len(words) > 1 else "")
