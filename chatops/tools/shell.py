"""`shell_exec`: run one command in its own session with a clean environment, sandboxed if possible.

A simple command is started without a shell, with exactly the words that the policy has judged. Only other commands are
passed to bash.

Facts of a call: its words, if it is a simple command; why it may do more here than they say; what it may read although
`file_read` would refuse it; and the files that it loads (`loaded_files`).
"""

import glob
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from chatops.domain.sandbox import SandboxLevel
from chatops.domain.tools import BUILT_IN_TOOLS, CallFacts, Exposure, ToolResult
from chatops.git.repository import password_in_remotes, reads_only, why_not_harmless, without_programs
from chatops.sandbox.execution import (
    MAX_TEXT,
    SandboxFailures,
    inspect_program,
    program_seconds,
    run_confined,
    search_path,
)
from chatops.sandbox.lacks import with_lacks
from chatops.shell.grammar import differs, parse
from chatops.shell.harmless import PROGRAMS, RUN_WORKSPACE_CODE, file_words, launched
from chatops.shell.program_effects import may_run_code
from chatops.shell.simple_command import Expand, simple_words
from chatops.toolkit.base import ToolContext
from chatops.toolkit.confine import home_folders, home_secrets, why_refused
from chatops.toolkit.output import visible
from chatops.toolkit.survey import Find, sensitive, survey
from chatops.toolkit.threads import in_thread
from chatops.tools.function import FunctionTool, tool
from chatops.tools.loaded_files import loaded_files

_READERS_DIFFER = "two readers of shell commands disagree about the words of this one"
_NAMES_ONLY = frozenset({"ls", "find", "tree", "du", "df", "stat"})
"""Programs that show names of files but not their content."""
_FOLLOW_LINKS = frozenset({"diff"})
_FOLLOW_LINKS_BY_FLAG = {"ls": "L"}
"""Programs that follow the links that they find; others that do so with a flag."""
_MAX_SHOWN = 300
"""Characters of a path that a reason names."""


def shell_tools(best: SandboxLevel = SandboxLevel.HARD) -> tuple[FunctionTool, ...]:
    """Return `shell_exec`. `best` is the highest sandbox level to use."""
    failures = SandboxFailures(best)

    @tool(inspect=partial(_inspect, failures=failures), timeout_s=60.0, capabilities=BUILT_IN_TOOLS["shell_exec"])
    async def shell_exec(
        command: Annotated[str, Field(description="Bash command. Runs non-interactively: stdin is empty.")],
        context: ToolContext,
        facts: CallFacts,
        timeout_s: Annotated[int | None, Field(ge=1, le=86_400, description="Maximum run time in seconds.")] = None,
        cwd: Annotated[str | None, Field(description="Working directory, relative to the workspace.")] = None,
    ) -> ToolResult:
        """Run a shell command in the workspace. Returns stdout and stderr, and the exit code if it is not 0."""
        max_seconds = program_seconds(context)
        argv = facts.argv or ("/bin/bash", "-c", "--", facts.command)
        environment: dict[str, str] = {}
        # Files that may hold secrets are hidden, unless the user has decided on this very call.
        masked = context.exposure is not Exposure.WHOLE
        if masked and reads_only(argv):
            # Git would show hidden files as removed, so it is told to leave them out instead.
            argv, environment = await in_thread(without_programs, argv, cwd=Path(facts.cwd))
            masked = False
        return await run_confined(
            argv,
            facts=facts,
            context=context,
            failures=failures,
            seconds=min(max_seconds, timeout_s or max_seconds),
            masked=masked,
            environment=environment,
            pipeline=parse(facts.command).pipeline,
        )

    return (shell_exec,)


def _inspect(
    arguments: Mapping[str, Any], facts: CallFacts, context: ToolContext, failures: SandboxFailures
) -> CallFacts:
    command: str = arguments["command"]
    inspected = inspect_program(
        command, field="command", cwd=arguments["cwd"] or ".", facts=facts, context=context, failures=failures
    )
    if isinstance(inspected, CallFacts):
        return inspected
    facts, confined = inspected.facts, inspected.confined
    cwd = Path(facts.cwd)
    facts = command_facts(
        command,
        facts=facts,
        cwd=cwd,
        path=search_path(confined),
        contained=bool(confined.program),
        context=context,
        # Sorted; the resulting words are judged and run without another expansion.
        expand=lambda pattern: tuple(sorted(glob.glob(pattern, root_dir=cwd))),
    )
    earlier = failures.lacks(facts, context)
    return with_lacks(facts, confined=confined, best=failures.best, context=context, earlier=earlier)


def command_facts(
    command: str,
    *,
    facts: CallFacts,
    cwd: Path,
    path: str,
    contained: bool,
    context: ToolContext,
    expand: Expand | None = None,
) -> CallFacts:
    """Add what `command` would do if it ran in the folder `cwd` with this PATH, `contained` in a sandbox or not.

    `expand` expands globs, for a tool that runs the expanded words. Without it, a command with a glob has no words.
    """
    readers_differ = differs(command)
    argv = () if readers_differ else _direct_words(command, path=path, cwd=cwd, expand=expand)
    targets = _existing_targets(argv, cwd=cwd)
    return replace(
        facts,
        command=command,
        caution=facts.caution or _caution(argv, path=path, context=context, cwd=cwd),
        argv=argv,
        reveals=_reveals(argv, targets=targets, contained=contained, context=context, cwd=cwd),
        paths=(*facts.paths, *(target for target in targets if target not in facts.paths)),
        hashes=loaded_files(command, words=argv or simple_words(command), cwd=cwd, context=context),
        needs_user="; ".join(filter(None, (_READERS_DIFFER if readers_differ else "", facts.needs_user))),
    )


def _direct_words(command: str, *, path: str, cwd: Path, expand: Expand | None) -> tuple[str, ...]:
    """Return the words of a simple command whose program is a file, otherwise nothing.

    Words of the shell itself (``cd``) need a shell.
    """
    words = simple_words(command, expand=expand)
    if not words or sum(len(word) + 1 for word in words) > MAX_TEXT:
        return ()
    if "/" in words[0]:
        program = Path(os.path.join(cwd, words[0]))
        return words if program.is_file() and os.access(program, os.X_OK) else ()
    return words if shutil.which(words[0], path=path) else ()


def _caution(words: tuple[str, ...], *, path: str, context: ToolContext, cwd: Path) -> str:
    """Return why a command may do more here than its words say: the workspace can change what they mean."""
    if not words or "/" in words[0]:
        # A rule cannot name a program by path.
        return ""
    program = shutil.which(words[0], path=path) or ""
    places = (os.path.realpath(program), os.path.realpath(os.path.dirname(program)))
    inside = any(Path(place).is_relative_to(context.workspace) for place in places)
    # Where code of the workspace runs anyway, it does not matter if the program lies in it too.
    if inside and words[0] in PROGRAMS.keys() | {"git"} and words[0] not in RUN_WORKSPACE_CODE:
        return f"{words[0]} is a program in the workspace: {program}."
    if words[0] != "git" and launched(words)[:1] == ("git",):
        return f"{words[0]} starts git, which follows the repository's configuration."
    if words[0] == "git" and (reason := why_not_harmless(cwd, program=program, workspace=context.workspace)):
        return f"git may do more than this command says: {reason}."
    for target in map(Path, _existing_targets(words, cwd=cwd)):
        if target.is_relative_to(context.workspace) and (refusal := why_refused(target, context=context, write=False)):
            return refusal
    return ""


def _reveals(
    words: tuple[str, ...], *, targets: tuple[str, ...], contained: bool, context: ToolContext, cwd: Path
) -> str:
    """Return what the command may read although `file_read` refuses it or asks; empty if nothing.

    The sandbox hides such files, except in a home folder. Without it, code of the workspace can read all of them there.
    """
    words = launched(words) or words
    if not words:
        return ""
    program = PROGRAMS.get(words[0])
    if program is not None and program.prints_only:
        return ""
    workspace = context.workspace
    if workspace == Path("/") or workspace in home_folders():
        return f"The workspace is {workspace}, so {words[0]} can read any of your files."
    if config := password_in_remotes(words, cwd=cwd):
        return f"git can show {_show(config)}, which may hold keys or passwords."
    if contained or reads_only(words):
        return ""
    runs_code = may_run_code(words, cwd=str(cwd))
    contents = runs_code or words[0] not in _NAMES_ONLY
    places = [workspace] if runs_code else list(map(Path, targets))
    if not places and program is not None and _reads_cwd(words):
        places = [cwd]
    try:
        for place in (place for place in places if place.is_relative_to(workspace)):
            secret = _sensitive_below(place, words=words, contents=contents, context=context)
            if secret is not None:
                return f"{words[0]} can read {_show(secret)}, which may hold keys or passwords."
    except OSError as error:
        return f"{words[0]} may read files that could not be checked ({error.strerror})."
    return ""


def _sensitive_below(place: Path, *, words: tuple[str, ...], contents: bool, context: ToolContext) -> Path | None:
    """Return a file at or below `place` that the program may show although `file_read` would not; None without one.

    `contents`: it shows what is in files, not only their names.
    """
    if not place.is_dir():
        return place if contents and sensitive(place, workspace=context.workspace) else None
    flag = _FOLLOW_LINKS_BY_FLAG.get(words[0])
    follows_links = words[0] in _FOLLOW_LINKS or (flag is not None and _has_flag(words, flag))
    protected = [path for path in (*context.protected, *home_secrets()) if contents and path.exists()]
    find = (Find.SECRETS if contents else Find.NOTHING) | (Find.LINKS if follows_links else Find.NOTHING)
    secret = survey(place, workspace=context.workspace, find=find).secret
    return next((path for path in (*protected, *secret) if path.is_relative_to(place)), None)


def _reads_cwd(words: tuple[str, ...]) -> bool:
    """Return True if a reading program that names no file reads the folder that it runs in."""
    return words[0] in {"ls", "rg"} or _has_flag(words, "r") or "--recursive" in words


def _show(path: Path) -> str:
    return visible(str(path), limit=_MAX_SHOWN)


def _has_flag(words: tuple[str, ...], letter: str) -> bool:
    return any(word.startswith("-") and not word.startswith("--") and letter in word for word in words)


def _existing_targets(words: tuple[str, ...], *, cwd: Path) -> tuple[str, ...]:
    """Return the resolved targets of those words after the program that name existing files.

    A rule that allows further words does not allow a target outside the folder, however harmless the word looks.
    """
    # Also those in `--file=NAME`.
    names = (name for word in words[1:] for name in (word, word.partition("=")[2]))
    paths = (os.path.join(cwd, name) for name in (*names, *file_words(words)) if name)
    return tuple(dict.fromkeys(os.path.realpath(path) for path in paths if os.path.lexists(path)))
