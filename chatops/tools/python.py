"""`python_exec`: run code in a fresh Python interpreter, confined in the same way as commands of `shell_exec`."""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from chatops.domain.sandbox import SandboxLevel, SandboxSpec
from chatops.domain.tools import BUILT_IN_TOOLS, CallFacts, Exposure, ToolResult
from chatops.sandbox.confinement import Confinement, program_is_visible
from chatops.sandbox.execution import SandboxFailures, inspect_program, program_seconds, run_confined, search_path
from chatops.toolkit.base import ToolContext
from chatops.tools.function import FunctionTool, tool

_PYTHON_OPTIONS = ("-I", "-u", "-X", "utf8", "-c")
"""Isolated mode: neither the environment nor the workspace affects imports. Unbuffered: output before a time limit is
not lost. The code follows as one argument, so that no file with it is left on the disk.
"""

_NO_PYTHON = "No python3 was found to run the code with."


def python_tools(best: SandboxLevel = SandboxLevel.HARD) -> tuple[FunctionTool, ...]:
    """Return `python_exec`. `best` is the highest sandbox level to use."""
    failures = SandboxFailures(best)

    @tool(inspect=partial(_inspect_code, failures=failures), timeout_s=60.0, capabilities=BUILT_IN_TOOLS["python_exec"])
    async def python_exec(
        code: Annotated[str, Field(description="Python code. Runs non-interactively: stdin is empty.")],
        context: ToolContext,
        facts: CallFacts,
    ) -> ToolResult:
        """Run Python code in the workspace folder. Each call starts a new interpreter. Installed packages
        can be imported. Returns what the code prints (stdout and stderr), and the exit code if it is not 0."""
        argv = (*facts.interpreter, facts.command)
        return await run_confined(
            argv,
            facts=facts,
            context=context,
            failures=failures,
            seconds=program_seconds(context),
            # Only a call that the user decided on sees files that may hold secrets.
            masked=context.exposure is not Exposure.WHOLE,
        )

    return (python_exec,)


def _inspect_code(
    arguments: Mapping[str, Any], facts: CallFacts, context: ToolContext, failures: SandboxFailures
) -> CallFacts:
    inspected = inspect_program(
        arguments["code"], field="code", cwd=".", facts=facts, context=context, failures=failures
    )
    if isinstance(inspected, CallFacts):
        return inspected
    facts, confined = inspected.facts, inspected.confined
    program = _find_python(confined, spec=context.sandbox, workspace=context.workspace)
    return replace(
        facts,
        refusal=facts.refusal or ("" if program else _NO_PYTHON),
        caution=_caution_about(program, workspace=context.workspace),
        interpreter=(program, *_PYTHON_OPTIONS) if program else (),
    )


def _find_python(confined: Confinement, *, spec: SandboxSpec, workspace: Path) -> str:
    """Return the first ``python3`` on PATH that is visible, or this interpreter; empty if neither is visible."""
    is_sandboxed = bool(confined.program)
    on_path = (shutil.which("python3", path=folder) for folder in search_path(confined).split(os.pathsep))
    for program in filter(None, (*on_path, sys.executable)):
        if not is_sandboxed or program_is_visible(program, confined=confined, spec=spec, workspace=workspace):
            return program
    return ""


def _caution_about(program: str, *, workspace: Path) -> str:
    """Return the caution of a call whose interpreter lies in the workspace, where the model may have changed it."""
    places = (Path(program), Path(os.path.realpath(program)))
    if program and any(place.is_relative_to(workspace) for place in places):
        return f"python3 is a program in the workspace: {program}."
    return ""
