"""`@tool`: turn a function into a tool. Its signature becomes the schema, its docstring the description."""

import asyncio
import functools
import inspect as introspection
import json
import logging
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from subprocess import CompletedProcess
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from chatops.config.folder_identity import folder_identity
from chatops.domain.canonical import JsonValue, canonical
from chatops.domain.endings import exit_of, with_ending
from chatops.domain.errors import ToolError, ToolFailedError
from chatops.domain.files import File, FileRef
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.tools import (
    BUILT_IN,
    NO_CAPABILITIES,
    NO_FACTS,
    AccessLevel,
    CallFacts,
    Capabilities,
    Outcome,
    ResultFacts,
    ToolCall,
    ToolResult,
    ToolSpec,
    Verdict,
)
from chatops.toolkit.base import Reconciled, ToolContext
from chatops.toolkit.output import Collector, cap, is_binary, visible, without_surrogates
from chatops.toolkit.threads import EscapedError, as_exception, in_thread
from chatops.tools.arguments import fit, fit_schema, parse, without_values
from chatops.tools.schema import without_references

log = logging.getLogger(__name__)

Inspector = Callable[[Mapping[str, Any], CallFacts, ToolContext], CallFacts]
"""Adds facts to a call with valid arguments. Has no effects and runs in a thread."""
Reconciler = Callable[[CallFacts, ToolContext], Reconciled]
"""Finds out after a crash what a started call did, and removes what it left half done. Runs in a thread."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_GRACE_S = 1.5
"""Seconds to wait for a cancelled thread that may be in the middle of a change."""


@frozen_dataclass
class FunctionTool:
    """A tool over a function, sync (it runs in a thread) or async; see `tool`.

    Its arguments are validated by the model `arguments`. Without one they are validated against the schema of `spec`,
    without any coercion, and passed as keywords.
    """

    spec: ToolSpec
    function: Callable[..., Any]
    arguments: type[BaseModel] | None = None
    context_name: str = ""
    """Name of the parameter that gets the `ToolContext`; empty: none does."""
    facts_name: str = ""
    """Name of the parameter that gets the `CallFacts`; empty: none does."""
    inspector: Inspector | None = None
    reconciler: Reconciler | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function directly, for Python code instead of a model: no check, no approval."""
        return self.function(*args, **kwargs)

    async def inspect(self, call: ToolCall, context: ToolContext) -> CallFacts:
        """Parse and validate `call`, then run the tool's own inspector. Never raises for what a model wrote."""
        return await in_thread(self._inspect, call, context)

    def _inspect(self, call: ToolCall, context: ToolContext) -> CallFacts:
        # Here, because `inspect_call` would need another turn of a thread for it.
        return replace(self._find_facts(call, context), folder=folder_identity(context.workspace))

    def _find_facts(self, call: ToolCall, context: ToolContext) -> CallFacts:
        values: Mapping[str, Any]
        if self.arguments is None:
            fitted = fit_schema(parse(call), schema=self.spec.schema)
            values = fitted.value
        else:
            strict = not self.spec.read_only
            fitted, validated = fit(parse(call), model=self.arguments, schema=self.spec.schema, strict=strict)
            values = {} if validated is None else _field_values(validated)
        facts = CallFacts(arguments=fitted.text, problems=fitted.problems, repairs=fitted.repairs)
        if facts.problems or self.inspector is None:
            return facts
        facts = replace(facts, workspace=str(context.workspace))
        try:
            return self.inspector(values, facts, context)
        except Exception as error:
            _log_error("inspecting", self.spec, error)
            return replace(facts, refusal=f"The call could not be inspected: {_describe_error(error)}.")

    async def run(self, facts: CallFacts, context: ToolContext) -> ToolResult:
        """Call the function with the inspected arguments. Raises ToolRetryError, ToolFailedError or CancelledError."""
        if facts.problems or facts.refusal:
            raise ToolFailedError("The call is invalid and cannot run.")
        keywords: dict[str, Any]
        if self.arguments is None:
            keywords = dict(parse(ToolCall(id=context.call_id, name=self.spec.name, arguments=facts.arguments)).value)
        else:
            validated = self.arguments.model_validate_json(facts.arguments, strict=not self.spec.read_only)
            keywords = dict(_field_values(validated))
        if self.context_name:
            keywords[self.context_name] = context
        if self.facts_name:
            keywords[self.facts_name] = facts
        return await call_function(self.function, keywords, spec=self.spec, context=context)

    async def reconcile(self, facts: CallFacts, context: ToolContext) -> Reconciled:
        """Run the tool's own reconciler; without one the outcome is unknown."""
        if self.reconciler is None:
            return Reconciled(result=None)
        try:
            return await in_thread(self.reconciler, facts, context)
        except Exception as error:
            _log_error("reconciling", self.spec, error)
            return Reconciled(result=None)


async def call_function(
    function: Callable[..., Any], keywords: Mapping[str, Any], *, spec: ToolSpec, context: ToolContext
) -> ToolResult:
    """Call a function with checked arguments and return its result as a `ToolResult`. Files in it are kept.

    Raises ToolRetryError, ToolFailedError or CancelledError.
    """
    try:
        result = await _call_or_await(function, keywords, read_only=spec.read_only)
    except ToolError:
        raise
    except Exception as error:
        _log_error("running", spec, error)
        raise ToolFailedError(f"Tool execution failed: {_describe_error(error)}") from error
    parts = result if isinstance(result, list | tuple) else (result,)
    files = [part for part in parts if isinstance(part, File)]
    if not files:
        return as_result(result, limit=context.max_output_chars)
    kept_files = [await in_thread(context.keep_file, file.name, file.data) for file in files]
    texts = [as_result(part, limit=context.max_output_chars).content for part in parts if not isinstance(part, File)]
    return as_result(file_result(kept_files, text="\n".join(texts)), limit=context.max_output_chars)


async def _call_or_await(function: Callable[..., Any], keywords: Mapping[str, Any], *, read_only: bool) -> Any:
    """Call a function: an async one here, a sync one in a thread.

    Raises ToolFailedError if the call was cancelled but its change is still running.
    """
    if introspection.iscoroutinefunction(function):
        return await _await_function(function, keywords)
    thread = asyncio.ensure_future(in_thread(functools.partial(function, **keywords)))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        # A thread cannot be stopped. Wait until a change is done, so that nothing happens after the result is reported.
        if not read_only:
            await asyncio.wait({thread}, timeout=_GRACE_S)
        # An error that comes later is looked at, so that asyncio does not report it as lost.
        thread.add_done_callback(lambda done: done.cancelled() or done.exception())
        if not read_only and not thread.done():
            raise ToolFailedError("The call was cancelled, but it is still running.") from None
        raise


async def _await_function(function: Callable[..., Any], keywords: Mapping[str, Any]) -> Any:
    """Await an async function.

    Only the caller may cancel it. A cancellation or exit that the function raises itself becomes an ordinary error.
    """
    try:
        return await function(**keywords)
    except (Exception, GeneratorExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        raise as_exception(error) from error


def tool(
    *,
    name: str = "",
    min_access: AccessLevel = AccessLevel.OPERATOR,
    verdict: Verdict = Verdict.ASK,
    read_only: bool = False,
    idempotent: bool = False,
    capabilities: Capabilities = NO_CAPABILITIES,
    asks_after_reading: bool = False,
    timeout_s: float = 60.0,
    source: str = BUILT_IN,
    steps: tuple[str, ...] = (),
    inspect: Inspector | None = None,
    reconcile: Reconciler | None = None,
) -> Callable[[Callable[..., Any]], FunctionTool]:
    """Make a tool of a function, sync (it runs in a thread) or async.

    Parameters are described by ``Annotated[type, Field(description=…)]``. A parameter of type `ToolContext` or
    `CallFacts` is passed in and is not part of the schema. Unless the tool is `read_only`, its arguments are validated
    without any coercion. The defaults of `min_access` and `verdict` are the cautious ones.
    """

    def make_tool(function: Callable[..., Any]) -> FunctionTool:
        tool_name = name or function.__name__
        parameters = _parameters_of(function)
        config = ConfigDict(extra="forbid", allow_inf_nan=False)
        model: type[BaseModel] = create_model(tool_name, __config__=config, **parameters.fields)
        spec = ToolSpec(
            name=tool_name,
            description=_first_paragraph(function),
            schema=canonical(without_references(_without_titles(model.model_json_schema()))),
            min_access=min_access,
            verdict=verdict,
            read_only=read_only,
            idempotent=idempotent,
            reconcilable=reconcile is not None,
            capabilities=capabilities,
            asks_after_reading=asks_after_reading,
            timeout_s=timeout_s,
            source=source,
            steps=steps,
        )
        return FunctionTool(
            spec=spec,
            function=function,
            arguments=model,
            context_name=parameters.context_name,
            facts_name=parameters.facts_name,
            inspector=inspect,
            reconciler=reconcile,
        )

    return make_tool


def as_result(value: object, *, limit: int) -> ToolResult:
    """Convert the return value of a function to a result of at most `limit` characters.

    A mapping with a non-empty ``error`` counts as a failure, and so does a program with another exit code than 0.
    """
    match value:
        case ToolResult():
            capped = cap(value.content, limit=limit)
            return replace(
                value, content=without_surrogates(capped.text), truncated=value.truncated or capped.truncated
            )
        case None:
            text = ""
        case str():
            text = value
        case bytes():
            return _bytes_result(value, limit=limit)
        case CompletedProcess():
            return _program_result(value, limit=limit)
        case _:
            text = _as_text(value)
    capped = cap(text, limit=limit)
    failed = isinstance(value, Mapping) and bool(value.get("error"))
    return ToolResult(
        outcome=Outcome.FAILED if failed else Outcome.SUCCESS,
        content=without_surrogates(capped.text),
        truncated=capped.truncated,
        facts=ResultFacts(count=len(value)) if isinstance(value, list | tuple) else NO_FACTS,
    )


def file_result(files: Sequence[FileRef], *, text: str = "") -> ToolResult:
    """Return a result with files. Its text names them, for models that cannot see them."""
    named = "\n".join(f"[file: {file}]" for file in files)
    return ToolResult(
        outcome=Outcome.SUCCESS,
        content="\n".join(part for part in (text, named) if part),
        facts=ResultFacts(files=tuple(file for file in files if not file.problem)),
    )


def _program_result(ended: "CompletedProcess[Any]", *, limit: int) -> ToolResult:
    parts = [
        part.decode("utf-8", "replace") if isinstance(part, bytes) else part for part in (ended.stdout, ended.stderr)
    ]
    text = "\n".join(part.rstrip("\n") for part in parts if part)
    capped = cap(text, limit=limit)
    ending = exit_of(ended.returncode)
    return ToolResult(
        outcome=Outcome.SUCCESS if ending.succeeded else Outcome.FAILED,
        content=without_surrogates(with_ending(capped.text, ending)),
        truncated=capped.truncated,
        facts=ResultFacts(ending=ending),
    )


def _bytes_result(value: bytes, *, limit: int) -> ToolResult:
    if is_binary(value):
        return ToolResult(outcome=Outcome.SUCCESS, content=f"[binary, {len(value):,} bytes]")
    collector = Collector(limit=limit)
    collector.feed(value)
    capped = collector.capped(limit=limit)
    return ToolResult(outcome=Outcome.SUCCESS, content=capped.text, truncated=capped.truncated)


def _as_text(value: object) -> str:
    """Return a value as JSON, otherwise as its repr: it may contain itself, or keys that JSON lacks."""
    for spell in (functools.partial(json.dumps, ensure_ascii=False, default=str), repr):
        try:
            return str(spell(value))
        except Exception:
            log.info("a result of type %s cannot be spelled", type(value).__name__)
    return f"[{type(value).__name__}]"


@frozen_dataclass
class _Parameters:
    """The parameters of a function: the arguments, as fields for pydantic, and those that the program passes in."""

    fields: dict[str, Any]
    context_name: str
    """See `FunctionTool`."""
    facts_name: str


def _parameters_of(function: Callable[..., Any]) -> _Parameters:
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
            is_required = parameter.default is introspection.Parameter.empty
            fields[parameter.name] = (hint, ... if is_required else parameter.default)
    return _Parameters(fields=fields, context_name=context_name, facts_name=facts_name)


def _first_paragraph(function: Callable[..., Any]) -> str:
    text = introspection.getdoc(function) or ""
    return " ".join(text.partition("\n\n")[0].split())


def _without_titles(schema: JsonValue) -> JsonValue:
    """Drop titles that pydantic derives from names, because they only cost tokens; keep a property called ``title``."""
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


def _field_values(value: BaseModel) -> Mapping[str, Any]:
    return {name: getattr(value, name) for name in type(value).model_fields}


def _log_error(doing: str, spec: ToolSpec, error: Exception) -> None:
    """Log an error with its traceback, but without the values that did not fit: they may be secrets."""
    if isinstance(error, ValidationError):
        place = "".join(traceback.format_tb(error.__traceback__))
        log.error("%s %s failed:\n%s%s", doing, spec.name, place, without_values(error))
    else:
        log.error("%s %s failed", doing, spec.name, exc_info=error)


def _describe_error(error: BaseException) -> str:
    """Describe an error by its name and a short text, because `str(error)` may be empty (TimeoutError) or long."""
    if isinstance(error, EscapedError):
        return visible(str(error), limit=300)
    message = without_values(error) if isinstance(error, ValidationError) else str(error)
    text = visible(message, limit=300)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def tool_name_fault(name: str) -> str:
    """Return what is wrong with the name of a tool; empty if it is valid. Model servers accept no other names."""
    if _NAME.fullmatch(name):
        return ""
    return f"{name!r} is not a valid tool name: use at most 64 letters, digits, - and _"


def schema_text(parameters: dict[str, Any]) -> str:
    """Return a schema as a spec stores it. Its type is ``object`` unless it says otherwise; references are written out.

    Raises ValueError for values that are not JSON.
    """
    return canonical(without_references({"type": "object", **parameters}))
