"""Slash commands in an editor, spelled as in the terminal: those for which the editor has nothing of its own."""

from typing import NamedTuple

from chatops.domain.errors import ConfigError
from chatops.domain.ids import MessageId
from chatops.domain.messages import SummaryMessage
from chatops.runtime.session import Session
from chatops.wiring.rows import workflow_list
from chatops.wiring.workspace import Workspace

COMMANDS = {
    "workflow": ("run NAME QUERY | cancel", "list workflows and runs, run one in an empty session, or end this run"),
    "compact": ("WHAT TO KEEP | undo", "send a summary instead of what was said, or all of it again"),
    "retry": ("", "retry after an error"),
    "tools": ("", "tools of the role: allowed, asks or denied"),
    "permissions": ("", "what no longer asks, and what is taken away"),
    "mcp": ("", "MCP servers: their state and tools"),
    "doctor": ("", "what is set up and what is not"),
}
"""The arguments of each command, and what it does."""


class Command(NamedTuple):
    """A command as it was typed."""

    name: str
    argument: str


def read_command(text: str) -> Command | None:
    """Return the command in a message; None for a message without one."""
    name, _, rest = text.removeprefix("/").partition(" ")
    return Command(name, rest.strip()) if text.startswith("/") and name in COMMANDS else None


async def run(command: Command, session: Session, workspace: Workspace) -> str:
    """Run a command. Return what it shows; nothing if a turn or a run was started. Raises ChatopsError."""
    argument = command.argument
    match command.name:
        case "workflow":
            return await _workflow(argument, session, workspace)
        case "compact" if argument == "undo":
            await session.actions.compact(SummaryMessage(id=MessageId(""), text="", replaces=0))
            return "All messages are sent again."
        case "compact":
            summary = await session.actions.summary_request(argument)()
            await session.actions.compact(summary)
            return f"{summary.text}\n\n/compact undo takes it back."
        case "retry":
            return "" if await session.retry() else "There is nothing to retry."
        case "tools":
            return await workspace.rights.tools(session)
        case "permissions":
            return await workspace.rights.permissions(session)
        case "mcp":
            return workspace.servers()
        case _:
            return await workspace.doctor()


async def _workflow(argument: str, session: Session, workspace: Workspace) -> str:
    runs = workspace.runs
    verb, _, rest = argument.partition(" ")
    name, _, query = rest.strip().partition(" ")
    current = runs.run_of(session)
    is_used = current is not None or session.state is not None or bool(session.snapshot().messages)
    match verb:
        case "":
            resumes = "Open its session to resume one."
            return workflow_list(await runs.workflows(), await runs.unfinished(), resumes=resumes)
        case "run" if not name or not query.strip():
            raise ConfigError("Name a workflow and what it should do: /workflow run NAME QUERY")
        case "run" if is_used:
            raise ConfigError("A run has a session of its own.", advice="Write this as the first message of a new one.")
        case "run":
            warnings: list[str] = []
            await runs.new(name, query=query.strip(), beside=session, warn=warnings.append, empty=session)
            for text in warnings:
                session.notify(text)
            if (started := runs.run_of(session)) is not None:
                await started.resume()
            return ""
        case "cancel" if current is not None:
            return "The run is ended." if await current.cancel() else "This run has already ended."
        case _:
            raise ConfigError(f"/workflow does not know {verb!r} here.", advice="/workflow lists workflows and runs.")
