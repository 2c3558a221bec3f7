"""Facts of calls of a program's own tools, as far as the tools' declared capabilities give them.

The command, code, URL or path of such a call is shown and judged like that of a built-in tool. Unlike a built-in tool,
the program's tool runs or reads it itself, in the workspace and outside any sandbox.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from chatops.domain.tools import CallFacts, Capabilities, Problem, written_path
from chatops.sandbox.execution import unfit
from chatops.toolkit.addresses import BadUrlError, read_url
from chatops.toolkit.base import ToolContext
from chatops.toolkit.confine import locate, with_place
from chatops.toolkit.output import visible
from chatops.tools.shell import command_facts
from chatops.tools.web import host_of

UNSANDBOXED = "off (the tool runs it itself)"


def declared_facts(
    known: Capabilities, arguments: Mapping[str, Any], facts: CallFacts, context: ToolContext
) -> CallFacts:
    """Add what `known` tells about a call with valid `arguments`. Has no effect."""
    if known.path or known.writes:
        raw = _text(arguments, known.path) or written_path(known, facts.arguments)
        if raw:
            facts = with_place(facts, locate(raw, context=context, write=bool(known.writes), field=known.path))
    if url := _text(arguments, known.url):
        try:
            facts = replace(facts, hosts=(host_of(read_url(url)),), network=True)
        except BadUrlError as error:
            return _with_problem(facts, known.url, str(error), given=visible(url))
    argument = known.command or known.code
    if argument:
        text = _text(arguments, argument)
        if fault := unfit(text):
            return _with_problem(facts, argument, fault)
        facts = replace(facts, cwd=str(context.workspace), sandbox=UNSANDBOXED, network=True)
        if known.code:
            return replace(facts, command=text)
        path = os.environ.get("PATH", "")
        return command_facts(text, facts=facts, cwd=context.workspace, path=path, contained=False, context=context)
    return facts


def _text(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name) if name else None
    return value if isinstance(value, str) else ""


def _with_problem(facts: CallFacts, path: str, message: str, *, given: str = "") -> CallFacts:
    return replace(facts, problems=(*facts.problems, Problem(path=path, message=message, given=given)))
