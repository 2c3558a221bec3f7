"""The slash commands as one table, the palette made of it, and running a command that was typed."""

import difflib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field

from chatops.domain.errors import ChatopsError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.policy.sandbox import FIXED_CHOICES
from chatops.tui.commands import context as context_commands
from chatops.tui.commands import cost, handlers, revision, search
from chatops.tui.commands import workflow as workflow_commands
from chatops.tui.commands.replies import Context, Handler, Notify, Replies, ScreenAction
from chatops.tui.composer import Completion
from chatops.tui.dialogs.picker import Choice, Picker, table
from chatops.tui.keys import DEFAULTS, KeyHint, key_of

Offers = Callable[[Context, tuple[str, ...]], Awaitable[Sequence[Completion]]]
"""Returns completions for the next word, given the words before it."""


@frozen_dataclass
class SlashCommand:
    """One command."""

    name: str
    help: str
    args: str = ""
    run: Handler | ScreenAction
    words: Mapping[str, str] = field(default_factory=dict)
    """What its argument may begin with, each with a note. A word that another one follows ends with a blank."""
    offers: Offers | None = None
    """Completes what `words` do not."""

    async def complete(self, context: Context, before: tuple[str, ...]) -> Sequence[Completion]:
        """Return completions for the word after `before`, which starts with the command's name."""
        if self.words and not before[1:]:
            return [Completion(insert=word, text=word.rstrip(" +"), note=note) for word, note in self.words.items()]
        return await self.offers(context, before) if self.offers is not None else []


async def _sandbox_offers(context: Context, before: tuple[str, ...]) -> Sequence[Completion]:
    """Complete the values of those settings that have a fixed choice."""
    return [] if before[2:] else [Completion(insert=value, text=value) for value in FIXED_CHOICES.get(before[1], ())]


COMMANDS: tuple[SlashCommand, ...] = (
    SlashCommand(name="help", args="[WORD]", help="keys and commands, or those about a word", run=handlers.about),
    SlashCommand(name="role", args="[NAME]", help="switch the role", run=handlers.role, offers=handlers.role_offers),
    SlashCommand(name="model", args="[NAME|role]", help="choose the model, or let the role choose", run=handlers.model),
    SlashCommand(name="persona", args="[NAME]", help="let the model speak as another persona", run=handlers.persona),
    SlashCommand(name="tools", help="tools of the role: allowed, asks or denied", run=handlers.tools),
    SlashCommand(
        name="policy",
        args="[TOOL [JSON]]",
        help="what each role may do, and why; the verdict on a call",
        run=handlers.policy,
    ),
    SlashCommand(
        name="permissions",
        args="[revoke [ID] | deny TOOL]",
        help="what no longer asks, and what is taken away",
        run=handlers.permissions,
        words={"revoke ": "a rule: ask again from now on", "deny ": "take a tool from this session"},
        offers=handlers.permission_offers,
    ),
    SlashCommand(
        name="sandbox",
        args="[git|network|hosts|read|write|env|require VALUE | reset]",
        help="what commands see, write and reach; change it for this session: /sandbox hosts +example.org",
        run=handlers.sandbox,
        words={
            **{f"{key} ": ", ".join(values) for key, values in FIXED_CHOICES.items()},
            **dict.fromkeys(("hosts +", "read +", "write +", "env +"), "+NAME adds, -NAME removes"),
            "reset": "as the registry says",
        },
        offers=_sandbox_offers,
    ),
    SlashCommand(
        name="pending",
        args="[--all]",
        help="what is pending in this workspace; the calls of all sessions, decided from here",
        run=handlers.pending,
        words={"--all": "the calls of all sessions"},
    ),
    SlashCommand(name="jobs", help="turns that continue in the background, and what they wait for", run=handlers.jobs),
    SlashCommand(name="background", help="let the running turn continue without this window", run=handlers.background),
    SlashCommand(name="new", help="start an empty session", run=handlers.new),
    SlashCommand(name="sessions", args="[WORDS]", help="choose, rename or delete a session", run=handlers.sessions),
    SlashCommand(
        name="search",
        args="[--all] TEXT",
        help="find a text in the sessions of this folder, or of all folders",
        run=search.search,
        words={"--all ": "in all folders"},
    ),
    SlashCommand(name="resume", args="[ID]", help="resume a session", run=handlers.resume),
    SlashCommand(name="reload", help="apply a changed registry, new skills and tools", run=handlers.reload),
    SlashCommand(name="takeover", help="take over a session that is open elsewhere", run=ScreenAction.TAKE_OVER),
    SlashCommand(
        name="contain",
        args="[off | undo]",
        help="work on a copy and ask once about all changes; take them back",
        run=handlers.contain,
        words={"off": "contain no more turns", "undo": "take back the changes applied last"},
    ),
    SlashCommand(name="rename", args="TITLE", help="rename this session", run=handlers.rename),
    SlashCommand(name="fork", help="continue in a copy of this session", run=handlers.fork),
    SlashCommand(
        name="retry",
        args="[MODEL|ROLE]",
        help="retry after an error; ask again with another model or role, in a copy",
        run=revision.retry,
        offers=revision.retry_offers,
    ),
    SlashCommand(name="edit", help="edit a message and send it again, in a copy of the session", run=revision.edit),
    SlashCommand(
        name="undo",
        args="[list]",
        help="take back the last turn, or all from a chosen message on, and the files it changed",
        run=revision.undo,
        words={"list": "choose a message to go back to"},
    ),
    SlashCommand(
        name="diff",
        args="[last | PATH]",
        help="what this session's file tools changed, as diffs",
        run=revision.diff,
        offers=revision.diff_offers,
    ),
    SlashCommand(name="history", help="choose among the texts you sent before", run=revision.history),
    SlashCommand(
        name="compact",
        args="[undo | WHAT TO KEEP]",
        help="replace what was said by a summary that you see first",
        run=context_commands.compact,
    ),
    SlashCommand(
        name="context", help="the system prompt, and where each part is from", run=context_commands.show_context
    ),
    SlashCommand(name="skills", help="the skills that the model may read", run=handlers.skills),
    SlashCommand(
        name="memory",
        args="[edit|clear [workspace|user]]",
        help="notes for later sessions: show, edit, clear",
        run=context_commands.memory,
        words={"edit ": "in $EDITOR", "clear ": "asks first"},
        offers=context_commands.memory_offers,
    ),
    SlashCommand(name="cost", help="tokens and cost so far, by turn, day and model", run=cost.cost),
    SlashCommand(
        name="export", args="[md|html|jsonl|openai] [FILE]", help="write this session to a file", run=handlers.export
    ),
    SlashCommand(
        name="delegated", args="[N]", help="what the role of a delegated task said and did", run=revision.delegated
    ),
    SlashCommand(
        name="copy",
        args="[N|code]",
        help="copy the last answer, the Nth from the end, or a code block of it",
        run=revision.copy,
        words={"code": "a code block of the last answer"},
    ),
    SlashCommand(name="theme", args="[NAME]", help="choose colours", run=handlers.theme),
    SlashCommand(
        name="mcp",
        args="[reconnect NAME|login NAME]",
        help="MCP servers: their state and tools; connect to one again, or log in at one",
        run=handlers.mcp,
        words={"reconnect ": "connect again now", "login ": "log in, in the browser"},
    ),
    SlashCommand(name="doctor", help="what is set up and what is not", run=handlers.doctor),
    SlashCommand(
        name="trust",
        args="[revoke]",
        help="trust your own tools, and what this folder brings: notes, workflows",
        run=handlers.trust,
    ),
    SlashCommand(
        name="workflow",
        args="[run NAME QUERY | show STEP | resume [ID] | cancel]",
        help="multi-step workflows: list, run, show, resume, cancel",
        run=workflow_commands.workflow,
        words=workflow_commands.VERBS,
        offers=workflow_commands.offers,
    ),
    SlashCommand(name="quit", help="quit; pending calls stay pending", run=ScreenAction.QUIT),
)


def command_picker() -> Picker:
    """Return the picker for a command, in the order of the table (ctrl+p)."""
    offered = [command for command in COMMANDS if command.name not in ("rename", "export")]
    texts = table([(f"/{command.name}", command.help) for command in offered], most=(12, 88))
    choices = [
        Choice(
            key=command.name,
            text=text,
            find=f"{command.name} {command.help}",
            preview=f"/{command.name} {command.args}".rstrip(),
            accent=len(command.name) + 1,
        )
        for command, text in zip(offered, texts, strict=True)
    ]
    return Picker(
        "Commands", choices=choices, hint=[KeyHint(does="keys and more", id="help")], empty="No such command."
    )


ALIASES = {"clear": "new", "exit": "quit", "q": "quit"}
"""Names of the same commands in other programs."""


def find_command(name: str) -> SlashCommand | None:
    """Return the command of that name, or None."""
    name = ALIASES.get(name, name)
    return next((command for command in COMMANDS if command.name == name), None)


def unknown_command(name: str) -> str:
    """Return the message for an unknown name: a key of that name, or the nearest names and how to send the text anyway.

    If no name is near, commands are suggested that begin with the name, or have it as a word of their help.
    """
    if name in DEFAULTS:
        return f"There is no command /{name}: the key {key_of(name)} does that."
    names = [command.name for command in COMMANDS]
    alike = [other.name for other in COMMANDS if name and (other.name.startswith(name) or name in other.help.split())]
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6) or alike[:3]
    hint = f" Did you mean {', '.join('/' + other for other in near)}?" if near else " /help lists them."
    return f"There is no command /{name}.{hint} To send it as a message, put a space before it."


def is_known(text: str) -> bool:
    """Return True if a typed command starts with the name of one."""
    name, _, _ = text[1:].partition(" ")
    return find_command(name.strip()) is not None


async def run_command(context: Context, text: str) -> Replies:
    """Run a typed command. The replies end with `ScreenAction.GIVE_BACK` if nothing was done."""
    name, _, argument = text[1:].partition(" ")
    command = find_command(name.strip())
    if command is None:
        return (Notify(unknown_command(name.strip())), ScreenAction.GIVE_BACK)
    if isinstance(command.run, ScreenAction):
        return (command.run,)
    try:
        return await command.run(context, argument.strip())
    except ChatopsError as error:
        return (Notify(error.full), ScreenAction.GIVE_BACK)
