"""Facts about a call of a program's own tool, as far as its declared capabilities give them.

Its command, code, URL or path is shown and judged like that of a built-in tool. The program's tool runs or reads it
itself, in the workspace and outside any sandbox.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from chatops.domain.tools import CallFacts, Capabilities, written_path
from chatops.sandbox.execution import argument_fault
from chatops.toolkit.addresses import BadUrlError, read_url
from chatops.toolkit.base import ToolContext
from chatops.toolkit.confine import locate, with_place, with_problem
from chatops.tools.shell import command_facts
from chatops.tools.web import host_of

UNSANDBOXED = "off (the tool runs it itself)"


def declared_facts(
    declared: Capabilities, arguments: Mapping[str, Any], facts: CallFacts, context: ToolContext
) -> CallFacts:
    """Add what `declared` tells about a call with valid `arguments`. Has no effect."""
    if declared.path or declared.writes:
        raw = _text_argument(arguments, declared.path) or written_path(declared, facts.arguments)
        if raw:
            facts = with_place(facts, locate(raw, context=context, write=bool(declared.writes), field=declared.path))
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
    facts = replace(facts, cwd=str(context.workspace), sandbox=UNSANDBOXED, network=True)
    if declared.code:
        return replace(facts, command=text)
    path = os.environ.get("PATH", "")
    return command_facts(text, facts=facts, cwd=context.workspace, path=path, contained=False, context=context)


def _text_argument(arguments: Mapping[str, Any], name: str) -> str:
    """Return the argument `name`; empty if the name is, or if the argument is missing or no text."""
    value = arguments.get(name) if name else None
    return value if isinstance(value, str) else ""
