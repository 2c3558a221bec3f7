"""Tools of a program: functions by their signature (`tool`), and a collection with explicit schemas (`ToolRegistry`).

The programmer's declarations are trusted; a registry can still narrow them. `register`, `get_schemas` and `execute`
work as in other frameworks, but a tool registered twice is an error, and arguments are checked against the schema.

The command, code, URL or path that a tool declares is shown and judged like that of a built-in tool. The program's tool
runs or reads it itself, in the workspace and outside any sandbox.
"""

import asyncio
import inspect
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, TypedDict, Unpack, overload

from chatops.config.workflow_read import schema_fault
from chatops.domain.canonical import canonical
from chatops.domain.errors import ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import CallId
from chatops.domain.tools import (
    AccessLevel,
    CallFacts,
    Capabilities,
    LevelWord,
    ToolCall,
    ToolSpec,
    Verdict,
    VerdictWord,
    written_path,
)
from chatops.policy.workflow import PYTHON_PROGRAM
from chatops.sandbox.execution import argument_fault
from chatops.toolkit.addresses import BadUrlError, read_url
from chatops.toolkit.base import ToolContext
from chatops.toolkit.confine import locate, with_place, with_problem
from chatops.tools.arguments import fit_schema, parse
from chatops.tools.function import FunctionTool, Inspector, schema_text, tool_name_fault
from chatops.tools.function import tool as function_tool
from chatops.tools.shell import command_facts
from chatops.tools.web import host_of

SOURCE = PYTHON_PROGRAM
"""Origin of such a tool, as lists name it."""

AnyTool = str | Callable[..., Any] | FunctionTool
"""A tool as steps take it: a function, a result of `tool`, or the name of an existing tool."""
StepKey = str | int
"""A step by name, as ``WORKFLOW.STEP``, or by its number from 1."""
_UNSANDBOXED = "off (the tool runs it itself)"


class ToolOptions(TypedDict, total=False):
    """The options of a tool that a program defines, see `tool`."""

    verdict: VerdictWord
    min_access: LevelWord
    read_only: bool
    idempotent: bool
    timeout_s: float
    command: str
    code: str
    url: str
    path: str
    writes: str
    reads_workspace: bool
    verb: str
    counts: str | tuple[str, str]


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...


@overload
def tool(*, name: str = "", **options: Unpack[ToolOptions]) -> Callable[[Callable[..., Any]], FunctionTool]: ...


def tool(
    function: Callable[..., Any] | None = None, /, *, name: str = "", **options: Unpack[ToolOptions]
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a tool of a function: ``@tool``, or ``@tool(verdict="allow", read_only=True)``.

    The signature is the schema: every parameter needs a type. The first paragraph of the docstring is the description.
    The function may be sync (then it runs in a thread) or async, and return text, anything that JSON can hold, or None.
    An exception and ``{"error": …}`` are failures: `ToolRetry` tells the model what to correct in its call,
    `ToolFailed` what went wrong. A `File`, also in a list with text, is kept beside the session, and models that take
    images see it. A validator returns ``{"valid": bool, "errors": [{"property": …, "message": …}]}``. Any other tool
    needs ``passes_when`` to validate.

    `read_only`: it changes nothing. `idempotent`: it may be repeated after a crash. By default a tool asks each time,
    needs access level operator, and may take 60 seconds (`timeout_s`).

    What the tool does decides how its calls are shown and which rules it can have. `command`, `code`, `url` and `path`
    name a parameter of the function: the command line that it runs in the workspace, the code that it runs, the URL
    that it fetches, the file that it reads or writes. A rule about a tool with `command` needs a pattern of words, such
    as ``git status *``, as for shell_exec. `writes` is the path of the file that a call writes, as a template over the
    arguments (``{path}``). `reads_workspace`: its result may contain data of the workspace. A function may return the
    `subprocess.CompletedProcess` of a program, so that its exit code is known.

    `verb` is the name that the user sees, such as ``Look up``; one that a built-in tool has is not used. `counts` is
    the noun for an item of the list that the function returns, such as ``"port"``, or ``("entry", "entries")``: the
    number of items then stands beside the call.

    Raises ConfigError for a function that cannot be a tool.
    """

    def make(function: Callable[..., Any]) -> FunctionTool:
        called = name or getattr(function, "__name__", "")
        _check_signature(function, called)
        spec = _make_spec(called, tuple(inspect.signature(function).parameters), **options)
        try:
            by_signature = function_tool(name=called)(function)
        except (NameError, TypeError) as error:
            raise _unfit_error(called, f"its types cannot be read: {error}") from error
        spec = replace(spec, description=by_signature.spec.description, schema=by_signature.spec.schema)
        return replace(by_signature, spec=spec, inspector=_make_inspector(spec.capabilities))

    return make if function is None else make(function)


def as_tool(given: Callable[..., Any] | FunctionTool) -> FunctionTool:
    """Return a function as a tool that asks; a tool as it is. Raises ConfigError."""
    if isinstance(given, FunctionTool):
        return given
    if not callable(given):
        raise ConfigError(f"{given!r} is not a tool.", advice="Give a function, or the name of a tool that exists.")
    return tool(given)


def _make_spec(
    name: str,
    parameters: Collection[str],
    *,
    verdict: VerdictWord = "ask",
    min_access: LevelWord = "operator",
    read_only: bool = False,
    idempotent: bool = False,
    timeout_s: float = 60.0,
    command: str = "",
    code: str = "",
    url: str = "",
    path: str = "",
    writes: str = "",
    reads_workspace: bool = False,
    verb: str = "",
    counts: str | tuple[str, str] = "",
) -> ToolSpec:
    """Return what `ToolOptions` say of a tool with these parameters, and their defaults.

    Raises ConfigError if a declared argument is not a parameter of the tool, or if it declares a command and code.
    """
    for key, argument in (("command", command), ("code", code), ("url", url), ("path", path)):
        if argument and argument not in parameters:
            raise ConfigError(
                f"Tool {name}: {key} names the parameter {argument!r}, which it does not have.",
                advice=f"Name one of: {', '.join(parameters) or 'none'}.",
            )
    if command and code:
        raise ConfigError(f"Tool {name}: it runs a command or code, not both.", advice="Make two tools of it.")
    # Whatever runs or opens files may read the workspace.
    reads = reads_workspace or bool(command or code or path)
    return ToolSpec(
        name=name,
        description="",
        schema="",
        min_access=AccessLevel[min_access.upper()],
        verdict=Verdict(verdict),
        read_only=read_only,
        idempotent=idempotent,
        timeout_s=timeout_s,
        source=SOURCE,
        capabilities=Capabilities(
            command=command,
            code=code,
            url=url,
            path=path,
            writes=writes,
            reads_workspace=reads,
            verb=verb,
            # An empty plural is the noun with an s.
            counts=(counts, "") if isinstance(counts, str) else counts,
            # As for file_read: several files that were read in a row are one line.
            folds=bool(read_only and path and counts),
        ),
    )


def _make_inspector(known: Capabilities) -> Inspector | None:
    """Return the inspector of a tool with these capabilities; None if they tell nothing about a call."""
    if not (known.runs_anything or known.url or known.path or known.writes):
        return None
    return partial(_declared_facts, known)


def _check_signature(function: Callable[..., Any], name: str) -> None:
    if fault := tool_name_fault(name):
        raise ConfigError(f"{fault}.", advice="Give it another one: tool(name=…).")
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise _unfit_error(name, f"{parameter} has no name that a model could give")
        if parameter.annotation is parameter.empty:
            raise _unfit_error(name, f"its parameter {parameter.name} has no type")


def _unfit_error(name: str, why: str) -> ConfigError:
    return ConfigError(
        f"The function {name} cannot be a tool: {why}.",
        advice="Give every parameter a name and a type, or register it with a schema: ToolRegistry().register(…).",
    )


@frozen_dataclass
class _Registered:
    tool: FunctionTool
    parameters: Mapping[str, Any]
    """The schema of its arguments, as it was given."""
    steps: tuple[StepKey, ...]
    """The steps that may use it; empty: every step."""


class ToolRegistry:
    """Tools in the order in which they were registered."""

    def __init__(self) -> None:
        """Start empty."""
        self._tools: dict[str, _Registered] = {}

    def register(
        self,
        name: str,
        description: str,
        parameters: Mapping[str, Any],
        function: Callable[..., Any],
        steps: Sequence[StepKey] | None = None,
        **options: Unpack[ToolOptions],
    ) -> None:
        """Add a tool. `parameters` is the JSON Schema of its arguments; `steps` None: it belongs to every step.

        The function takes the arguments as keywords. See `tool` for what it may return and for the other parameters.
        Raises ConfigError for a name that is invalid or taken, and for a schema that cannot be used.
        """
        if fault := tool_name_fault(name):
            raise ConfigError(f"{fault}.", advice="Register it under another one.")
        if name in self._tools:
            raise ConfigError(f"A tool named {name!r} already exists.", advice="Register it under another name.")
        if steps is not None and (isinstance(steps, str) or not steps):
            raise ConfigError(
                f"Tool {name}: steps has to be a list of steps.", advice="Leave it out if it belongs to every step."
            )
        spec = _make_spec(name, tuple(parameters.get("properties", {})), **options)
        made = FunctionTool(
            spec=replace(spec, description=description, schema=_schema_text(name, parameters)),
            function=function,
            inspector=_make_inspector(spec.capabilities),
        )
        self._tools[name] = _Registered(tool=made, parameters=parameters, steps=() if steps is None else tuple(steps))

    def get_schemas(self, step: StepKey | None = None) -> list[dict[str, Any]]:
        """Return the tools of a step in Chat Completions format; None: only those that belong to every step."""
        return [
            {
                "type": "function",
                "function": {
                    "name": name,
                    "description": known.tool.spec.description,
                    "parameters": dict(known.parameters),
                },
            }
            for name, known in self._tools.items()
            if not known.steps or (step is not None and step in known.steps)
        ]

    def execute(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool's function directly, without any policy: for the program that registered it and its tests.

        Never raises: errors are returned as ``{"error": …}``. A result that is not an object is returned as
        ``{"result": …}``.
        """
        if name not in self._tools:
            return {"error": f"Unknown tool: {name}"}
        made = self._tools[name].tool
        try:
            call = ToolCall(id=CallId(""), name=name, arguments=canonical(dict(arguments)))
            fitted = fit_schema(parse(call), schema=made.spec.schema)
            if fitted.problems:
                problems = "; ".join(f"{problem.path or 'arguments'} {problem.message}" for problem in fitted.problems)
                return {"error": f"Invalid arguments for {name}: {problems}"}
            result = _run_function(made.function, dict(fitted.value))
        except Exception as error:
            return {"error": f"Error executing {name}: {error}"}
        return dict(result) if isinstance(result, Mapping) else {"result": result}

    def entries(self) -> Iterator[tuple[FunctionTool, tuple[StepKey, ...]]]:
        """Yield each tool with the steps that may use it; none: every step."""
        return ((known.tool, known.steps) for known in self._tools.values())


def _schema_text(name: str, parameters: Mapping[str, Any]) -> str:
    try:
        text = schema_text(dict(parameters))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"Tool {name}: its parameters are not JSON: {error}.") from error
    if fault := schema_fault(text):
        raise ConfigError(f"Tool {name}: {fault.message}.", advice="parameters is the JSON Schema of its arguments.")
    return text


def _run_function(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    if not inspect.iscoroutinefunction(function):
        return function(**arguments)
    # In a thread of its own, because the caller may be in an event loop already.
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(lambda: asyncio.run(function(**arguments))).result()


def _declared_facts(
    declared: Capabilities, arguments: Mapping[str, Any], facts: CallFacts, context: ToolContext
) -> CallFacts:
    """Add what `declared` tells about a call of a program's tool with valid `arguments`. Has no effect."""
    if named := _text_argument(arguments, declared.path) or written_path(declared, facts.arguments):
        # A problem with the path is reported for the parameter `path` if the tool has one.
        facts = with_place(facts, locate(named, context=context, write=bool(declared.writes), field=declared.path))
    if url := _text_argument(arguments, declared.url):
        try:
            facts = replace(facts, hosts=(host_of(read_url(url)),), network=True)
        except BadUrlError as error:
            return with_problem(facts, declared.url, str(error), given=url)
    argument = declared.command or declared.code
    if not argument:
        return facts
    text = _text_argument(arguments, argument)
    if fault := argument_fault(text):
        return with_problem(facts, argument, fault)
    facts = replace(facts, cwd=str(context.workspace), sandbox=_UNSANDBOXED, network=True)
    if declared.code:
        return replace(facts, command=text)
    path = os.environ.get("PATH", "")
    return command_facts(text, facts=facts, cwd=context.workspace, path=path, contained=False, context=context)


def _text_argument(arguments: Mapping[str, Any], name: str) -> str:
    """Return the argument `name`; empty if the name is, or if the argument is missing or no text."""
    value = arguments.get(name) if name else None
    return value if isinstance(value, str) else ""
