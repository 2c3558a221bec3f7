"""The ``/workflow`` command: lists workflows and runs, and controls the run of the open session."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chatops.domain.errors import ChatopsError, ConfigError
from chatops.domain.ids import SessionId
from chatops.domain.sanitize import sanitize
from chatops.tui.commands.face import AlreadyShownError, Face
from chatops.tui.composer.completions import Completion

if TYPE_CHECKING:
    from chatops.runtime.view import SessionView
    from chatops.runtime.workflow import WorkflowRun

VERBS = {
    "run": "begin a workflow in a conversation of its own",
    "show": "what a step of this run gave",
    "resume": "go on with a run",
    "cancel": "end this run",
}
_NO_RUN = "This conversation is no run of a workflow. /workflow lists the workflows and the runs."
_LED_ELSEWHERE = "This run is read along with here. F2 goes on with it in this window."


async def workflow(face: Face, argument: str) -> None:
    """Dispatch on the first word. Without one, list workflows and runs."""
    verb, rest = _split(argument)
    match verb:
        case "":
            await _list(face)
        case "run":
            await _run(face, rest)
        case "show":
            _show(face, rest)
        case "resume":
            await _resume(face, rest)
        case "cancel":
            await _cancel(face, rest)
        case _:
            raise ConfigError(f"/workflow knows {', '.join(VERBS)}, and not {verb!r}.", advice="/workflow lists them.")


async def offers(face: Face, before: tuple[str, ...]) -> Sequence[Completion]:
    """Return completions for the word after `before`, which starts with the command itself."""
    match before:
        case (_,):
            return [Completion(insert=f"{verb} ", text=verb, note=note) for verb, note in VERBS.items()]
        case (_, "run"):
            rows = [row for row in await face.host.workflows() if not row.problem]
            return [_offer(row.name, f"{row.name} ", row.description) for row in rows]
        case (_, "resume"):
            runs = await face.host.runs()
            return [_offer(row.id, row.id, f"{row.title}  {row.standing}") for row in runs]
        case (_, "show") if face.board is not None:
            return [_offer(name, name, "") for name in face.board.step_names()]
        case _:
            return []


def _offer(text: str, insert: str, note: str) -> Completion:
    return Completion(insert=insert, text=sanitize(text, newlines=False), note=sanitize(note, newlines=False))


async def _list(face: Face) -> None:
    from chatops.tui.workflow.text import listing

    face.show_text("Workflows", text=listing(await face.host.workflows(), await face.host.runs()))


async def _run(face: Face, rest: str) -> None:
    name, query = _split(rest)
    if not name or not query:
        raise ConfigError("Name a workflow and say what you want of it: /workflow run NAME QUERY")
    before = face.session.snapshot().session_id
    try:
        session = await face.host.new_run(name, query=query, beside=face.session, warn=face.say)
    except ConfigError as error:
        if "\n" not in str(error):
            raise
        face.show_text(f"Workflow {name} cannot run", text=f"{error}\n\n{error.advice}")
        raise AlreadyShownError from None
    await _change(face, session)
    if before:
        face.say(f"The conversation before is kept: /resume {before}")


def _show(face: Face, rest: str) -> None:
    if face.board is None:
        raise ChatopsError(_NO_RUN)
    if not rest:
        face.action_steps()
        return
    names = face.board.step_names()
    if rest in names:
        face.show_step(names.index(rest))
    elif rest.isdecimal() and 1 <= int(rest) <= len(names):
        face.show_step(int(rest) - 1)
    else:
        raise ConfigError(f"This run has no step {rest!r}.", advice=f"Its steps: {', '.join(names)}.")


async def _resume(face: Face, rest: str) -> None:
    if rest:
        await face.change_session(face.host.open_session(SessionId(rest)))
        return
    run = face.run
    if run is not None and not run.over:
        await _go_on(face, run)
        return
    left = await face.host.runs()
    if not left:
        raise ConfigError("No run of this workspace has been left unfinished.", advice="/workflow lists the workflows.")
    await face.change_session(face.host.open_session(left[0].id))


async def _go_on(face: Face, run: "WorkflowRun") -> None:
    """Continue a run that is open already: retry after an error, or open its pending review or approval."""
    if run.blocked_by is not None:
        await run.retry()
    elif run.pending_review is not None or run.session.snapshot().pending:
        face.open_pending()
    else:
        face.say("It is under way.")


async def _cancel(face: Face, rest: str) -> None:
    run = _the_run(face)
    if rest and rest != run.run_id:
        raise ConfigError(
            "/workflow cancel ends the run that is open.", advice=f"Open it first: /workflow resume {rest}"
        )
    if not await run.cancel():
        face.say("This run is over already.")


def _the_run(face: Face) -> "WorkflowRun":
    if face.run is None:
        raise ChatopsError(_NO_RUN if face.board is None else _LED_ELSEWHERE)
    return face.run


async def _change(face: Face, session: "SessionView") -> None:
    async def opened() -> "SessionView":
        return session

    await face.change_session(opened())


def _split(text: str) -> tuple[str, str]:
    """Return the first word and the rest."""
    words = text.split(maxsplit=1)
    return (words[0] if words else "", words[1].strip() if len(words) > 1 else "")
