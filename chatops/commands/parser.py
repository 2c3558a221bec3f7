"""The command line: every command and flag that this version has."""

import argparse
import re
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from importlib import import_module

from chatops.commands.argument_parser import Parser

# Enums of other packages have these words too. Importing those packages would delay every start.
OUTPUT_FORMATS = ("text", "json")
RUN_OUTPUT_FORMATS = ("text", "json", "stream-json")
ACCESS_LEVELS = ("viewer", "user", "operator", "admin")
DECISIONS = ("approved", "edited", "denied", "marked_done", "answered")
IMPORT_FORMATS = ("openai", "jsonl", "openwebui")
EXPORT_FORMATS = ("md", "html", "jsonl", "openai")
HOST_TYPES = ("openai", "openwebui", "ollama", "vllm", "llamacpp", "litellm", "openrouter", "lmstudio")
SHELLS = ("bash", "zsh", "fish")
CALL_ID = "of the call, as approvals list shows it; 6 or more characters of its beginning or end will do"
SESSION_ID = "its id, as sessions list shows it"
JOB_ID = "the id of its session, as jobs list shows it"
RUN_ID = "as workflow list shows it"

DESCRIPTION = (
    "A terminal chat app with role-based tool access: gated tools ask, and every approval survives a crash. "
    "For a screen reader, reduced motion or plain ASCII, see docs/accessibility.md, or /help accessibility in the chat."
)
EPILOG = (
    "exit codes: 0 answered, 1 error, 2 usage or bad configuration, 3 paused for approval, "
    "4 round, time or token limit, 130 interrupted"
)


def handler(arguments: Namespace) -> Callable[[Namespace], int]:
    """Return the function that runs the command. Only its module is imported."""
    module, _, function = arguments.handler.partition(".")
    run: Callable[[Namespace], int] = getattr(import_module(f"chatops.commands.{module}"), function or "run")
    return run


def parse(words: Sequence[str]) -> Namespace:
    """Parse a command line."""
    return build_parser(words).parse_args(words)


def build_parser(words: Sequence[str] | None = None) -> Parser:
    """Return the parser of the whole command line, without commands if `words` are options alone.

    Options alone start a chat, which does not wait for the parsers of all commands.
    """
    common = _common_flags()
    parser = Parser(
        prog="chatops", description=DESCRIPTION, epilog=EPILOG, parents=[common], allow_abbrev=False, add_help=True
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    _add_chat_flags(parser)
    if words is not None and parser.are_all_options(words):
        parser.set_defaults(command=None)
        return parser
    parser.actions = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser, title="commands")
    _Commands(parser.actions, common).fill()
    return parser


def _common_flags(*, workspace: bool = True) -> Parser:
    """Return the flags that may come before or after any command. For a worker --workspace means something else.

    Here and below, a flag that may also come before the command has `argparse.SUPPRESS` as its default: any other
    default of the command's parser would replace the given value.
    """
    common = Parser(add_help=False, argument_default=argparse.SUPPRESS, allow_abbrev=False)
    group = common.add_argument_group("everywhere")
    group.add_argument("--registry", metavar="PATH", help="use this model_registry.json")
    if workspace:
        group.add_argument("--workspace", metavar="DIR", help="work in this folder instead of the current one")
    help_folder = "let sandboxed commands write in this folder too; with :ro only read it"
    group.add_argument("--add-dir", metavar="DIR[:ro]", action="append", help=help_folder)
    group.add_argument("--access", metavar="LEVEL", choices=ACCESS_LEVELS, help="lower your access level: %(choices)s")
    return common


def _add_chat_flags(parser: Parser) -> None:
    group = parser.add_argument_group("chat (without a command)")
    group.add_argument("--role", metavar="ROLE", help="start in this role")
    group.add_argument("--model", metavar="MODEL", help="use this model of the registry")
    which = group.add_mutually_exclusive_group()
    which.add_argument(
        "-c", "--continue", dest="last", action="store_true", help="continue the last session of this workspace"
    )
    # Without a value the text is empty: -r then lets the user pick, and -p reads standard input alone.
    help_session = "resume a session (or pick one)"
    which.add_argument("-r", "--resume", dest="session", metavar="SESSION", nargs="?", const="", help=help_session)
    help_prompt = "answer without the screen and exit, as for a screen reader; reads standard input too"
    group.add_argument("-p", "--print", dest="prompt", metavar="PROMPT", nargs="?", const="", help=help_prompt)
    headless = parser.add_argument_group("with -p")
    _add_run_flags(headless)
    headless.add_argument("--max-rounds", metavar="N", type=_positive_number, help="stop after N rounds of tool calls")
    headless.add_argument(
        "--contain", action="store_true", help="work on a copy, and ask once about all changes (exit code 3)"
    )
    headless.add_argument(
        "--background", action="store_true", help="print the session's id and continue in the background: chatops jobs"
    )
    headless.add_argument(
        "--queue", metavar="ID", help="print the session's id and leave the turn to the workers of this workspace"
    )
    headless.add_argument("--summary", action="store_true", help="a short result, not in the persona's voice")


def _add_output_format(parser: argparse.ArgumentParser) -> None:
    help_text = "%(choices)s (default: text)"
    parser.add_argument("--output-format", choices=OUTPUT_FORMATS, default=argparse.SUPPRESS, help=help_text)


def _add_run_flags(group: "argparse._ActionsContainer") -> None:
    group.add_argument(
        "--output-format", choices=RUN_OUTPUT_FORMATS, default="text", help="%(choices)s (default: text)"
    )
    group.add_argument(
        "--approve", metavar="RULE", action="append", default=[], help="allow matching calls in this run; repeatable"
    )
    group.add_argument(
        "--on-approval", choices=("pause", "deny"), default="pause", help="what a gated call does (default: pause)"
    )
    help_budget = "ask before a turn goes beyond cost=N, tokens=N or minutes=N; repeatable"
    group.add_argument("--budget", metavar="LIMIT=N", action="append", default=[], help=help_budget)


def _add_id(command: argparse.ArgumentParser, help_text: str) -> None:
    command.add_argument("id", metavar="ID", help=help_text)


def _add_session_id(command: argparse.ArgumentParser) -> None:
    command.add_argument("session", metavar="SESSION", help=SESSION_ID)


def _positive_number(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"it has to be a whole number above zero, not {text!r}")
    return number


def _port(text: str) -> int:
    number = _positive_number(text)
    if number > 65_535:
        raise argparse.ArgumentTypeError(f"it has to be a port up to 65535, not {text!r}")
    return number


def _point_in_time(text: str) -> float:
    """Return a date, a time, or a duration before now, in seconds since the epoch."""
    from datetime import datetime

    try:
        if ago := re.fullmatch(r"([0-9]{1,5})([dhm])", text):
            return time.time() - int(ago[1]) * {"d": 86_400, "h": 3_600, "m": 60}[ago[2]]
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"it has to be a date or time such as 2026-11-22T18:30, or 30d for thirty days ago, not {text!r}"
        ) from None


def _step_and_attempt(text: str) -> tuple[int, int]:
    step, dot, attempt = text.partition(".")
    if not dot:
        raise argparse.ArgumentTypeError(f"it has to be a step and its attempt, such as 2.1, not {text!r}")
    return _positive_number(step), _positive_number(attempt)


class _Commands:
    """Adds the commands and their flags. It is a class only to hold the two objects that each command needs.

    A command is made by `_add_command`. A group is a command with actions, such as ``approvals list``: `_add_action`
    adds one, and `_add_listing` one that also prints JSON.
    """

    def __init__(self, parsers: "argparse._SubParsersAction[Parser]", common: Parser) -> None:
        self._parsers = parsers
        self._common = common

    def fill(self) -> None:
        """Add the commands in the order that help shows."""
        self._add_approvals()
        self._add_resume()
        self._add_jobs()
        self._add_workers()
        self._add_serve_and_acp()
        self._add_sessions()
        self._add_store()
        self._add_rights()
        self._add_models()
        self._add_audit()
        self._add_other_commands()
        self._add_workflow()

    def _add_approvals(self) -> None:
        actions = self._add_group("approvals", "the durable queue of gated calls")
        self._add_listing(actions, "list", "calls that wait for a decision")
        show = self._add_listing(actions, "show", "everything about one pending call")
        _add_id(show, CALL_ID)
        approve = self._add_action(actions, "approve", "let a call run, exactly as shown")
        _add_id(approve, CALL_ID)
        approve.add_argument("--digest", metavar="HEX", help="only if this is still what would run, as show printed it")
        help_only = "of the changes of a contained turn: apply those to this file; repeatable"
        approve.add_argument("--only", metavar="PATH", action="append", help=help_only)
        what = approve.add_mutually_exclusive_group()
        what.add_argument("--edit", metavar="JSON", help="run it with these arguments instead")
        what.add_argument("--again", action="store_true", help="of a call whose outcome is unknown: run it once more")
        what.add_argument("--done", action="store_true", help="of a call whose outcome is unknown: it took effect")
        deny = self._add_action(actions, "deny", "refuse a call, and tell the model")
        _add_id(deny, CALL_ID)
        deny.add_argument("--reason", metavar="TEXT", default="", help="reason that the model gets")

    def _add_resume(self) -> None:
        resume = self._add_command(
            "resume", "continue a turn whose calls have been decided, without the screen", "workflow.resume"
        )
        _add_session_id(resume)
        _add_run_flags(resume)

    def _add_jobs(self) -> None:
        actions = self._add_group("jobs", "turns that continue in the background")
        self._add_listing(actions, "list", "jobs of all folders, and what each waits for")
        for name, text in (
            ("show", "the state of a job, and what to do"),
            ("wait", "wait until a job is over or needs you; exit code as with -p"),
        ):
            _add_id(self._add_listing(actions, name, text), JOB_ID)
        _add_id(self._add_action(actions, "cancel", "stop a job, wherever it runs or waits"), JOB_ID)
        resume = self._add_action(actions, "resume", "start a job again that was interrupted or not started")
        _add_id(resume, JOB_ID)
        resume.add_argument("--foreground", action="store_true", help="in this process, until it is over or needs you")

    def _add_workers(self) -> None:
        worker = self._add_command(
            "worker", "drive turns of the queue, for a team with a database", common=_common_flags(workspace=False)
        )
        help_slots = "turns at a time (default: %(default)s)"
        worker.add_argument("--concurrency", metavar="N", type=_positive_number, default=2, help=help_slots)
        help_folder = "take turns of workspace ID and work in DIR; repeatable"
        worker.add_argument("--workspace", dest="folders", metavar="ID=DIR", action="append", help=help_folder)
        actions = self._add_group("queue", "turns that wait for a worker or a decision", "worker.queue")
        self._add_listing(actions, "list", "turns that are not over, and why no worker takes one")
        _add_id(
            self._add_action(actions, "cancel", "take back what you have queued and no worker has taken"), SESSION_ID
        )
        self._add_action(actions, "sweep", "let workers look at every turn that can go on")

    def _add_serve_and_acp(self) -> None:
        serve = self._add_command("serve", "decide in a browser or on a phone what waits in all sessions")
        help_port = "listen at this port (default: 8322, or another one if that is taken)"
        serve.add_argument("--port", metavar="N", type=_port, help=help_port)
        serve.add_argument("--host", metavar="HOST", help="listen for other machines too; needs --url and TLS")
        encrypted = serve.add_mutually_exclusive_group()
        encrypted.add_argument("--tls", metavar=("CERT", "KEY"), nargs=2, help="files with certificate and key, in PEM")
        encrypted.add_argument(
            "--behind-proxy", action="store_true", help="another server does TLS and forwards to here"
        )
        serve.add_argument("--url", metavar="https://NAME", help="the one address that browsers use, with TLS")
        self._add_command("acp", "work in an editor, which starts this (Agent Client Protocol)")

    def _add_sessions(self) -> None:
        actions = self._add_group("sessions", "stored sessions")
        listing = self._add_listing(actions, "list", "sessions of this folder, newest first (of all: --all)")
        listing.add_argument("--all", action="store_true", help="of all workspaces")
        listing.add_argument(
            "--limit", metavar="N", type=_positive_number, default=200, help="the newest N (default: 200)"
        )
        show = self._add_listing(actions, "show", "print a session")
        _add_session_id(show)
        search = self._add_listing(actions, "search", "find text in sessions of this folder (of all: --all)")
        search.add_argument("text", metavar="TEXT")
        search.add_argument("--all", action="store_true", help="in all workspaces")
        rename = self._add_action(actions, "rename", "give a session another title")
        _add_session_id(rename)
        rename.add_argument("title", metavar="TITLE")
        _add_session_id(self._add_action(actions, "fork", "copy a session up to now"))
        export = self._add_action(actions, "export", "write a session to stdout or a file")
        _add_session_id(export)
        export.add_argument("--format", choices=EXPORT_FORMATS, default="md", help="%(choices)s (default: md)")
        export.add_argument("--output", metavar="FILE", help="write here instead of stdout; never overwrites")
        for reading in (listing, show, search, export):
            reading.add_argument("--store", metavar="FILE", help="read this store file, such as a backup")
        adding = self._add_action(actions, "import", "store the conversations of a file as sessions of this folder")
        adding.add_argument("file", metavar="FILE", help="an export of chatops or Open WebUI, or OpenAI messages")
        adding.add_argument("--format", choices=IMPORT_FORMATS, help="%(choices)s (default: told from the content)")
        delete = self._add_action(actions, "delete", "remove a session; its decisions stay in the audit log")
        _add_session_id(delete)
        delete.add_argument("--yes", action="store_true", help="do not ask")

    def _add_store(self) -> None:
        actions = self._add_group("store", "the store of a team: copy sessions into it, check it, grant levels")
        copy = self._add_action(actions, "copy", "copy the sessions of a file into a database")
        help_for = "the member whose sessions they become (default: the role that copies)"
        copy.add_argument("--for", dest="member", metavar="ROLE", default="", help=help_for)
        copy.add_argument("source", metavar="sqlite://PATH", help="the file; it stays as it is")
        copy.add_argument("target", metavar="postgresql://…", help="the database; nothing in it is overwritten")
        check = self._add_action(actions, "check", "read all rows and files of a store, and say what is wrong")
        help_address = "sqlite://PATH or postgresql://… (default: the store in use)"
        check.add_argument("address", metavar="STORE", nargs="?", help=help_address)
        grant = self._add_action(
            actions, "grant", "give a member a level, as the owner; without ROLE: print all levels"
        )
        grant.add_argument("role", metavar="ROLE", nargs="?", help="a role of the database")
        grant.add_argument(
            "--level", choices=(*ACCESS_LEVELS, "none"), help="%(choices)s; none: may not even read any more"
        )

    def _add_rights(self) -> None:
        roles = self._add_group("roles", "what each role may do, for you, here", "rights.roles")
        self._add_listing(roles, "list", "all roles")
        show = self._add_listing(roles, "show", "one role: models, tools, prompt layers")
        show.add_last_word("role", metavar="ROLE", help="without it: the default role")
        tools = self._add_group("tools", "the tools there are", "rights.tools")
        listing = self._add_listing(tools, "list", "tools with their verdicts")
        listing.add_argument("--role", metavar="ROLE", help="as this role has them", default=argparse.SUPPRESS)
        show = self._add_listing(tools, "show", "one tool: its arguments, and what a role may do with it")
        show.add_argument("--role", metavar="ROLE", help="as this role has it", default=argparse.SUPPRESS)
        show.add_argument("tool", metavar="TOOL")
        check = self._add_listing(tools, "check", "run a file with a tool of your own, and report its problems")
        check.add_argument("file", metavar="FILE", help="a Python file; its code runs as you, outside the sandbox")
        check.add_argument("--yes", action="store_true", help="do not ask before it runs")
        policy = self._add_group("policy", "why a call is allowed, asked about or denied", "rights.policy")
        explain = self._add_listing(policy, "explain", "the verdict and the layer that gave it")
        help_role = "under this role (default: the default role)"
        explain.add_argument("--role", metavar="ROLE", help=help_role, default=argparse.SUPPRESS)
        explain.add_argument("tool", metavar="TOOL")
        explain.add_last_word("call", metavar="JSON", help="the call's arguments")
        matrix = self._add_listing(policy, "matrix", "the verdict on each tool in each role, for you")
        matrix.add_argument("--role", metavar="ROLE", help="this role first (default: the default role)")
        test = self._add_listing(
            policy, "test", "judge the calls of a file; exit code 1 if a verdict is not as expected"
        )
        test.set_defaults(handler="policy_cases")
        test.add_argument(
            "--from-history", action="store_true", help="write FILE, or to stdout, from what you decided in this folder"
        )
        test.add_last_word("file", metavar="FILE", help="cases: a call, its role and level, the expected verdict")
        replay = self._add_listing(policy, "replay", "judge logged calls again, such as under another registry")
        replay.add_argument("session", metavar="SESSION", nargs="*", help=f"{SESSION_ID} (default: all sessions)")
        help_since = "calls from then on, such as 30d or 2026-11-22"
        replay.add_argument("--since", metavar="TIME", type=_point_in_time, help=help_since)
        replay.set_defaults(handler="policy_replay")
        self._add_listing(policy, "list", "remembered rules and those of the configuration, with their source")
        revoke = self._add_action(policy, "revoke", "take a remembered rule back")
        revoke.add_argument("id", metavar="ID", help="of the rule, as policy list shows it")

    def _add_models(self) -> None:
        models = self._add_group("models", "configured models")
        listing = self._add_listing(models, "list", "what is configured and reachable")
        listing.add_argument("--offline", action="store_true", help="only what is configured; no server is asked")
        prices = self._add_listing(models, "prices", "what each configured model costs per million tokens")
        prices.add_argument("--refresh", action="store_true", help="load the newest known prices first")
        connect = self._add_command("connect", "ask an endpoint for its models and keep one")
        connect.add_argument("url", metavar="URL", help="such as http://127.0.0.1:11434")
        connect.add_argument("--model", metavar="ID", help="the model's name at the endpoint, instead of picking one")
        connect.add_argument("--name", metavar="NAME", help="what the registry calls it")
        connect.add_argument("--key-env", metavar="VARIABLE", help="the environment variable that holds the key")
        connect.add_argument("--host-type", metavar="TYPE", choices=HOST_TYPES, help="%(choices)s")
        self._add_mcp()
        registry = self._add_group("registry", "check the registry file, print its schema, migrate an older one")
        check = self._add_listing(registry, "check", "what is wrong, with line and column")
        check.add_last_word("path", metavar="PATH", help="of the file (default: the one in use)")
        self._add_action(registry, "schema", "the JSON Schema of model_registry.json")
        migrate = self._add_action(registry, "migrate", "print a Cortex registry of version 1 or 2 as version 3")
        migrate.add_argument("path", metavar="PATH", help="of the old file, which stays as it is")
        migrate.add_argument("--output", metavar="FILE", help="write here instead of stdout; never overwrites")

    def _add_mcp(self) -> None:
        servers = self._add_group("mcp", "MCP servers: list, add, remove, login, check")
        self._add_listing(servers, "list", "the servers of the registry")
        add = self._add_action(servers, "add", "write a server into your registry, and connect to it")
        add.add_argument("--env", metavar="NAME=VALUE", action="append", help="a variable of the command; repeatable")
        add.add_argument("--network", action="store_true", help="let the command use the network")
        add.add_argument("--header", metavar="NAME:VALUE", action="append", help="for a URL; repeatable")
        add.add_argument("--oauth", action="store_true", help="for a URL that asks for a login: chatops mcp login NAME")
        add.add_argument("--sse", action="store_true", help="for a URL that knows only the older transport, SSE")
        help_install = "do not ask: install a package once that is fetched otherwise (npx, uvx)"
        add.add_argument("--install", action="store_true", help=help_install)
        add.add_argument("name", metavar="NAME", help="what its tools are called by: NAME__TOOL")
        add.add_argument(
            "words", metavar="COMMAND|URL", nargs=argparse.REMAINDER, help="the command with its words, or the URL"
        )
        # `add` checks the new server as `check` does, which has flags for these.
        add.set_defaults(output_format="text", digest=None)
        remove = self._add_action(servers, "remove", "take a server out of your registry, and its login")
        login = self._add_action(servers, "login", "log in at a server with OAuth, in the browser")
        check = self._add_listing(servers, "check", "connect to a server, and list its tools")
        for parser in (remove, login, check):
            parser.add_argument("name", metavar="NAME", help="of the server, as mcp list shows it")
        check.add_argument("--digest", metavar="HEX", help="do not ask: start it if this is still its digest")

    def _add_audit(self) -> None:
        audit = self._add_group("audit", "the decision log")
        listing = self._add_listing(audit, "list", "every verdict, decision, start and result")
        export = self._add_action(audit, "export", "the whole log, one JSON object per line")
        help_since = "from then on, such as 2026-11-22 or 2026-11-22T18:30"
        for parser in (listing, export):
            parser.add_argument("--session", metavar="SESSION", help="of one session only")
            parser.add_argument("--since", metavar="TIME", type=_point_in_time, help=help_since)
            parser.add_argument("--decision", choices=DECISIONS, help="%(choices)s")
            parser.add_argument("--tool", metavar="TOOL", help="of one tool only")
        export.add_argument("--texts", action="store_true", help="with the prompts: a receipt to check")
        export.add_argument("-o", "--output", metavar="FILE", help="write to this file; never overwrites")
        export.add_argument("--sign", metavar="KEY", help="with -o: sign it with ssh-keygen, in FILE.sig")
        verify = self._add_action(audit, "verify", "check that no row was removed, changed, moved or inserted")
        verify.add_argument("--anchor", metavar="FILE", help="an earlier export, or lines of the system's log")

    def _add_other_commands(self) -> None:
        trust = self._add_command("trust", "trust what a folder brings: notes, workflows, skills")
        trust.add_argument("folder", metavar="DIR", nargs="?", help="the folder (default: the current one)")
        answer = trust.add_mutually_exclusive_group()
        answer.add_argument("--revoke", action="store_true", help="forget what you trust there")
        answer.add_argument("--digest", metavar="HEX", help="do not ask: trust it if this is still its digest")
        doctor = self._add_command("doctor", "check the installation; each problem with the next step")
        doctor.add_argument("--model", metavar="MODEL", help="check only this model, and ask it to call a tool")
        doctor.add_argument(
            "--tasks", action="store_true", help="with --model: let it do twenty small tasks, and keep its score"
        )
        doctor.add_argument("--yes", action="store_true", help="with --tasks: do not ask before it starts")
        _add_output_format(doctor)
        parse = self._add_command(
            "parse",
            "read tool calls out of text, JSON lines in and out",
            description='reads one JSON object per line from standard input, {"text": "...", "tools": {"NAME": {JSON '
            'Schema}}, "finish_reason": "stop"}, the last two of which may be left out, and answers each on one line',
        )
        parse.add_argument("--tools", metavar="FILE", help="the tools on offer, for lines without tools of their own")
        completions = self._add_command("completions", "print a shell completion script")
        completions.add_argument("shell", metavar="SHELL", choices=SHELLS, help="%(choices)s")
        completions.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)

    def _add_workflow(self) -> None:
        actions = self._add_group("workflow", "multi-step workflows")
        listing = self._add_listing(actions, "list", "workflows, and the runs in this folder")
        listing.add_argument("--all", action="store_true", help="runs of all folders")
        show = self._add_listing(actions, "show", "a workflow's steps, or the state of a run")
        show.add_argument("name", metavar="NAME-OR-ID", help=RUN_ID)
        run = self._add_action(actions, "run", "run a workflow until it ends or needs you")
        run.add_argument("name", metavar="NAME", help="as workflow list shows it")
        run.add_last_word("query", metavar="QUERY", help="the request; also from standard input")
        run.add_argument("--model", metavar="MODEL", help="for steps that name none", default=argparse.SUPPRESS)
        help_role = "for steps that name none (default: the default role)"
        run.add_argument("--role", metavar="ROLE", help=help_role, default=argparse.SUPPRESS)
        run.add_argument(
            "--max-iterations", metavar="N", type=_positive_number, help="model calls of each attempt at a step"
        )
        run.add_argument("--max-retries", metavar="N", type=_positive_number, help="attempts at each step, in all")
        run.add_argument("--queue", metavar="ID", help="print the run's id and leave it to the workers of a workspace")
        resume = self._add_action(actions, "resume", "resume a run")
        _add_id(resume, RUN_ID)
        review = resume.add_mutually_exclusive_group()
        for name, text in (
            ("accept", "the answer under review is good"),
            ("retry", "retry the step"),
            ("skip", "skip the step, where it allows that"),
            ("stop", "end the run as failed"),
        ):
            review.add_argument(f"--{name}", dest="word", action="store_const", const=name, help=text)
        resume.add_argument("--tell", metavar="TEXT", help="with --retry: what the next attempt has to know")
        about = "the step and attempt under review, as shown; refused if the run is not waiting for it"
        resume.add_argument("--attempt", metavar="STEP.ATTEMPT", type=_step_and_attempt, help=about)
        for parser in (run, resume):
            _add_run_flags(parser)
            parser.add_argument("--summary", action="store_true", help="only the result, no progress")
        _add_id(self._add_action(actions, "cancel", "end a run, and the turn under way with it"), RUN_ID)
        self._add_action(actions, "schema", "the JSON Schema of a workflow in a file of its own")

    def _add_group(self, name: str, text: str, handler: str = "") -> "argparse._SubParsersAction[Parser]":
        parser = self._add_command(name, text, handler)
        parser.actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=Parser)
        return parser.actions

    def _add_command(
        self, name: str, text: str, handler: str = "", *, description: str = "", common: Parser | None = None
    ) -> Parser:
        """Add a command. It is run by `handler` (``module.function``), or by ``run`` of the module of its name."""
        command = self._parsers.add_parser(
            name, help=text, description=description or text, parents=[common or self._common], allow_abbrev=False
        )
        command.set_defaults(handler=handler or name)
        return command

    def _add_action(self, actions: "argparse._SubParsersAction[Parser]", name: str, text: str) -> Parser:
        return actions.add_parser(name, help=text, description=text, parents=[self._common], allow_abbrev=False)

    def _add_listing(self, actions: "argparse._SubParsersAction[Parser]", name: str, text: str) -> Parser:
        parser = self._add_action(actions, name, f"{text} (default)" if name == "list" else text)
        _add_output_format(parser)
        return parser
