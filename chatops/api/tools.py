"""Functions as tools. The programmer's declarations are trusted; a registry can still narrow them."""

import inspect
from collections.abc import Callable
from typing import Any, Literal, overload

from chatops.domain.errors import ConfigError
from chatops.domain.rights import AccessLevel, Verdict
from chatops.policy.workflow import PYTHON_PROGRAM
from chatops.tools.function import FunctionTool, SchemaTool, tool_name_fault
from chatops.tools.function import tool as function_tool

VerdictWord = Literal["allow", "ask", "deny"]
LevelWord = Literal["viewer", "user", "operator", "admin"]
SOURCE = PYTHON_PROGRAM
"""Origin of such a tool, as lists name it."""

OwnTool = FunctionTool | SchemaTool
"""A tool of the program, which can be bound to steps."""
AnyTool = str | Callable[..., Any] | OwnTool
"""A tool as steps take it: the name of an existing one, a function, or what `tool` made of one."""


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...


@overload
def tool(
    *,
    name: str = "",
    verdict: VerdictWord = "ask",
    min_access: LevelWord = "operator",
    read_only: bool = False,
    idempotent: bool = False,
    timeout_s: float = 60.0,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str = "",
    verdict: VerdictWord = "ask",
    min_access: LevelWord = "operator",
    read_only: bool = False,
    idempotent: bool = False,
    timeout_s: float = 60.0,
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a tool of a function: ``@tool``, or ``@tool(verdict="allow", read_only=True)``.

    The signature is the schema: every parameter needs a type. The first paragraph of the docstring is the description.
    The function may be sync (then it runs in a thread) or async, and return text, anything that JSON can hold, or None.
    An exception and ``{"error": …}`` are failures. A validator returns
    ``{"valid": bool, "errors": [{"property": …, "message": …}]}``; any other tool needs ``passes_when`` to validate.

    `read_only`: it changes nothing. `idempotent`: it may be repeated after a crash. By default a tool asks each time
    and needs access level operator.

    Raises ConfigError for a function that cannot be a tool.
    """

    def made(function: Callable[..., Any]) -> FunctionTool:
        called = name or getattr(function, "__name__", "")
        _check(function, called)
        try:
            return function_tool(
                name=called,
                min_access=AccessLevel[min_access.upper()],
                verdict=Verdict(verdict),
                read_only=read_only,
                idempotent=idempotent,
                timeout_s=timeout_s,
                source=SOURCE,
            )(function)
        except (NameError, TypeError) as error:
            raise _unfit(called, f"its types cannot be read: {error}") from error

    return made if function is None else made(function)


def as_tool(given: Callable[..., Any] | OwnTool) -> OwnTool:
    """Return a function as a tool that asks; a tool as it is. Raises ConfigError."""
    if isinstance(given, FunctionTool | SchemaTool):
        return given
    if not callable(given):
        raise ConfigError(f"{given!r} is no tool.", advice="Give a function, or the name of a tool that exists.")
    return tool(given)


def _check(function: Callable[..., Any], name: str) -> None:
    if fault := tool_name_fault(name):
        raise ConfigError(f"{fault}.", advice="Give it another one: tool(name=…).")
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise _unfit(name, f"{parameter} has no name that a model could give")
        if parameter.annotation is parameter.empty:
            raise _unfit(name, f"its parameter {parameter.name} has no type")


def _unfit(name: str, why: str) -> ConfigError:
    return ConfigError(
        f"The function {name} cannot be a tool: {why}.",
        advice="Give every parameter a name and a type, or register it with a schema: ToolRegistry().register(…).",
    )
