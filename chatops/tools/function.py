"""`@tool`: a plain function becomes a tool. Its signature is the schema, its docstring the description."""

import asyncio
import functools
import inspect as introspection
import json
import logging
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from chatops.domain.canonical import JsonValue, canonical
from chatops.domain.errors import ToolError, ToolFailed
from chatops.domain.rights import AccessLevel, Verdict
from chatops.domain.tools import BUILT_IN, CallFacts, Outcome, ToolCall, ToolResult, ToolSpec
from chatops.tools.arguments import fit, parse, without_values
from chatops.tools.base import Reconciled, ToolContext
from chatops.tools.output import EMPTY, Collector, cap, is_binary, visible
from chatops.tools.threads import Escaped, in_thread, ordinary

log = logging.getLogger(__name__)

Inspector = Callable[[Mapping[str, Any], CallFacts, ToolContext], CallFacts]
"""Adds to the facts of a call with valid arguments: no effects, runs in a thread."""
Reconciler = Callable[[CallFacts, ToolContext], Reconciled]
"""Looks at the world after a crash, and clears away what was left half done: runs in a thread."""

_GRACE_S = 1.5
"""How long a cancelled thread that may be half way through a change is waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTool:
    """A tool made of a function; see `tool`."""

    spec: ToolSpec
    function: Callable[..., Any]
    arguments: type[BaseModel]
    context_name: str = ""
    facts_name: str = ""
    inspector: Inspector | None = None
    reconciler: Reconciler | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself, for a program that calls it and no model: nothing is checked or asked."""
        return self.function(*args, **kwargs)

    async def inspect(self, call: ToolCall, context: ToolContext) -> CallFacts:
        """Parse and validate `call`, then ask the tool's own inspector. Never raises for what a model wrote."""
        read, value = fit(parse(call), model=self.arguments, strict=not self.spec.read_only)
        facts = CallFacts(arguments=read.text, problems=read.problems, repairs=read.repairs)
        if value is None or self.inspector is None:
            return facts
        facts = replace(facts, workspace=str(context.workspace))
        try:
            return await in_thread(self.inspector, _fields(value), facts, context)
        except Exception as error:
            _log("inspecting", self.spec, error)
            return replace(facts, refusal=f"The call could not be inspected: {_reason(error)}.")

    async def run(self, facts: CallFacts, context: ToolContext) -> ToolResult:
        """Call the function with the inspected arguments. Raises ToolRetry, ToolFailed, CancelledError."""
        if facts.problems or facts.refusal:
            raise ToolFailed("This call has problems and cannot run.")
        value = self.arguments.model_validate_json(facts.arguments, strict=not self.spec.read_only)
        given: dict[str, Any] = dict(_fields(value))
        if self.context_name:
            given[self.context_name] = context
        if self.facts_name:
            given[self.facts_name] = facts
        return await called(self.function, given, spec=self.spec, limit=context.max_output_chars)

    async def reconcile(self, facts: CallFacts, context: ToolContext) -> Reconciled:
        """What the tool's own reconciler finds out; without one nobody knows."""
        if self.reconciler is None:
            return Reconciled(result=None)
        try:
            return await in_thread(self.reconciler, facts, context)
        except Exception as error:
            _log("reconciling", self.spec, error)
            return Reconciled(result=None)


async def called(function: Callable[..., Any], given: Mapping[str, Any], *, spec: ToolSpec, limit: int) -> ToolResult:
    """What a function gives for arguments that have been checked. Raises ToolRetry, ToolFailed, CancelledError."""
    try:
        result = await _call(function, given, read_only=spec.read_only)
    except ToolError:
        raise
    except Exception as error:
        _log("running", spec, error)
        raise ToolFailed(f"Tool execution failed: {_reason(error)}") from error
    return as_result(result, limit=limit)


async def _call(function: Callable[..., Any], given: Mapping[str, Any], *, read_only: bool) -> Any:
    """Raises ToolFailed for a change that goes on although its call was cancelled."""
    if introspection.iscoroutinefunction(function):
        return await _awaited(function, given)
    thread = asyncio.ensure_future(in_thread(functools.partial(function, **given)))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        # A thread cannot be stopped: let a change come to its end, so that nothing happens after the answer.
        if not read_only:
            await asyncio.wait({thread}, timeout=_GRACE_S)
        thread.add_done_callback(lambda done: done.cancelled() or done.exception())
        if not read_only and not thread.done():
            raise ToolFailed("It was told to stop and has not stopped.") from None
        raise


async def _awaited(function: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """What an async function gives. Only who runs the tool may cancel it or end the program."""
    try:
        return await function(**given)
    except (Exception, GeneratorExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        raise ordinary(error) from error


def tool(
    *,
    name: str = "",
    min_access: AccessLevel = AccessLevel.OPERATOR,
    verdict: Verdict = Verdict.ASK,
    read_only: bool = False,
    idempotent: bool = False,
    reads_workspace: bool = False,
    asks_after_reading: bool = False,
    timeout_s: float = 60.0,
    source: str = BUILT_IN,
    steps: tuple[str, ...] = (),
    inspect: Inspector | None = None,
    reconcile: Reconciler | None = None,
) -> Callable[[Callable[..., Any]], FunctionTool]:
    """Make a tool of a function, sync (it runs in a thread) or async.

    Parameters are described by ``Annotated[type, Field(description=…)]``; one of type `ToolContext` or
    `CallFacts` is passed in and not part of the schema. Unless the tool is `read_only`, its arguments are
    validated without any coercion. The level and verdict are the careful ones if nothing is said.
    """

    def made(function: Callable[..., Any]) -> FunctionTool:
        title = name or function.__name__
        fields, context_name, facts_name = _signature(function)
        config = ConfigDict(extra="forbid", allow_inf_nan=False)
        model: type[BaseModel] = create_model(title, __config__=config, **fields)
        spec = ToolSpec(
            name=title,
            description=_first_paragraph(function),
            schema=canonical(_without_titles(model.model_json_schema())),
            min_access=min_access,
            verdict=verdict,
            read_only=read_only,
            idempotent=idempotent,
            reconcilable=reconcile is not None,
            reads_workspace=reads_workspace,
            asks_after_reading=asks_after_reading,
            timeout_s=timeout_s,
            source=source,
            steps=steps,
        )
        return FunctionTool(
            spec=spec,
            function=function,
            arguments=model,
            context_name=context_name,
            facts_name=facts_name,
            inspector=inspect,
            reconciler=reconcile,
        )

    return made


def as_result(value: object, *, limit: int) -> ToolResult:
    """Whatever a function returned as a result of at most `limit` characters.

    An object whose `error` says something reports a failure.
    """
    match value:
        case ToolResult():
            capped = cap(value.content, limit=limit)
            return replace(value, content=_whole(capped.text), truncated=value.truncated or capped.truncated)
        case None:
            text = ""
        case str():
            text = value
        case bytes():
            return _of_bytes(value, limit=limit)
        case _:
            text = _spelled(value)
    capped = cap(text, limit=limit)
    failed = isinstance(value, Mapping) and bool(value.get("error"))
    outcome = Outcome.FAILED if failed else Outcome.SUCCESS
    return ToolResult(outcome=outcome, content=_whole(capped.text), truncated=capped.truncated)


def _of_bytes(value: bytes, *, limit: int) -> ToolResult:
    if is_binary(value):
        return ToolResult(outcome=Outcome.SUCCESS, content=f"[binary, {len(value):,} bytes]")
    collector = Collector(limit=limit)
    collector.feed(value)
    capped = collector.capped(limit=limit)
    return ToolResult(outcome=Outcome.SUCCESS, content=capped.text or EMPTY, truncated=capped.truncated)


def _spelled(value: object) -> str:
    """JSON where it can be, else how Python shows it: a result may hold itself, or keys that JSON has not."""
    for spell in (functools.partial(json.dumps, ensure_ascii=False, default=str), repr):
        try:
            return str(spell(value))
        except Exception:
            log.info("a result of type %s cannot be spelled", type(value).__name__)
    return f"[{type(value).__name__}]"


def _whole(text: str) -> str:
    """Without half characters (lone surrogates): they would poison whatever stores or sends the result."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _signature(function: Callable[..., Any]) -> tuple[dict[str, Any], str, str]:
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    context_name = facts_name = ""
    for parameter in introspection.signature(function).parameters.values():
        hint = hints[parameter.name]
        if hint is ToolContext:
            context_name = parameter.name
        elif hint is CallFacts:
            facts_name = parameter.name
        else:
            empty = parameter.default is introspection.Parameter.empty
            fields[parameter.name] = (hint, ... if empty else parameter.default)
    return fields, context_name, facts_name


def _first_paragraph(function: Callable[..., Any]) -> str:
    text = introspection.getdoc(function) or ""
    return " ".join(text.split("\n\n", 1)[0].split())


def _without_titles(schema: JsonValue) -> JsonValue:
    """Titles that pydantic derives from names only cost tokens; a property called ``title`` stays."""
    match schema:
        case Mapping():
            return {
                key: _without_titles(value)
                for key, value in schema.items()
                if not (key == "title" and isinstance(value, str))
            }
        case list():
            return [_without_titles(item) for item in schema]
        case _:
            return schema


def _fields(value: BaseModel) -> Mapping[str, Any]:
    return {name: getattr(value, name) for name in type(value).model_fields}


def _log(doing: str, spec: ToolSpec, error: Exception) -> None:
    """The whole story, but not the values that did not fit: they may be secrets."""
    if isinstance(error, ValidationError):
        place = "".join(traceback.format_tb(error.__traceback__))
        log.error("%s %s failed:\n%s%s", doing, spec.name, place, without_values(error))
    else:
        log.error("%s %s failed", doing, spec.name, exc_info=error)


def _reason(error: BaseException) -> str:
    """`str(error)` may be empty (TimeoutError) or long: a name and a short text."""
    if isinstance(error, Escaped):
        return visible(str(error), limit=300)
    told = without_values(error) if isinstance(error, ValidationError) else str(error)
    text = visible(told, limit=300)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
