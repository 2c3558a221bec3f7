"""``chatops policy test``: judge the calls of a file without running them, and compare with what the file expects.

A case of the file is a call with a role and a level. It is inspected in its workspace and judged under the registries
in force. Nothing runs, and remembered rules do not count, so a file means the same for every user. A case may expect
several verdicts: what a user denied once may ask or be denied later, but never be allowed.
"""

import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Len

from chatops.commands.application import open_app, run_app
from chatops.commands.context import options
from chatops.config.document import Document, read_document
from chatops.config.entries import EntryReader
from chatops.config.paths import write_new_private
from chatops.domain.canonical import JsonValue
from chatops.domain.decisions import Approved, Edited, Rejected
from chatops.domain.errors import ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.messages import ToolMessage
from chatops.domain.sanitize import reveal
from chatops.domain.tools import Verdict
from chatops.domain.wording import plural
from chatops.headless.json_values import arguments_value
from chatops.headless.screen import screen
from chatops.policy.grant import rule_of
from chatops.policy.spelled import STRICT, Access, Name, Spelled
from chatops.store.base import ALL
from chatops.wiring.app import App
from chatops.wiring.explain import Explanation, explain_call, place_of_key
from chatops.wiring.stored import Options

_MAX_BYTES = 16_000_000
"""Of a file of cases, which is read whole."""
_OneOrMore = Verdict | Annotated[tuple[Verdict, ...], Len(1)]
_Verdicts = Annotated[
    tuple[Verdict, ...], Spelled(_OneOrMore, lambda given: (given,) if isinstance(given, str) else given)
]
_NOT_DENIED, _NOT_ALLOWED = (Verdict.ALLOW, Verdict.ASK), (Verdict.ASK, Verdict.DENY)
"""Verdicts that are right for a call that users approved, and for one that they denied."""


@frozen_dataclass
class CaseCall:
    """A call to judge."""

    __pydantic_config__ = STRICT

    tool: Name
    arguments: Annotated[str, Spelled(dict[str, Any], json.dumps)] | None = None
    """An object, as the model writes it; left out: all calls of the tool, as far as their arguments do not matter."""


@frozen_dataclass
class Case:
    """A call, under which rights it is judged, and what is expected."""

    __pydantic_config__ = STRICT

    call: CaseCall
    verdict: _Verdicts
    """One verdict, or all that are right."""
    layer: str = ""
    """The layer that has to decide; left out: any."""
    name: str = ""
    role: str = ""
    """Left out: the registry's default role."""
    level: Access | None = None
    """The level of the user; left out: as the registry says. A site registry may hold it lower."""
    user: str = ""
    """Login of the user; left out: someone whom no entry names."""
    workspace: str = "."
    """Folder of the call, from the workspace of the command on."""
    after_reading: bool = False
    """True: the session has read workspace files."""


@frozen_dataclass
class CaseFile:
    """A file of cases."""

    __pydantic_config__ = STRICT

    cases: tuple[Case, ...]
    version: Literal[1] = 1


@frozen_dataclass
class _JudgedCase:
    case: Case
    where: str
    """Position of the case in its file."""
    explanation: Explanation
    decided_at: str
    """File and line of the deciding rule or layer; empty if no registry has it."""

    @property
    def is_expected(self) -> bool:
        deciding = self.explanation.deciding
        return deciding.verdict in self.case.verdict and self.case.layer in ("", deciding.reason)


@frozen_dataclass
class _DecidedCases:
    """The cases that follow from what users decided."""

    cases: list[JsonValue]
    left_out: int
    """Number of calls whose tool is not here any more, so that no case can be judged."""


def run(arguments: Namespace) -> int:
    """Judge the cases of a file; exit code 1 if a verdict differs. With ``--from-history`` write such a file."""
    if arguments.from_history:
        with open_app(arguments) as opened:
            return _write_history(opened, arguments)
    if arguments.file is None:
        raise ConfigError(
            "Which cases? No file was named.", advice="chatops policy test --from-history FILE writes one."
        )
    judged = _judge_cases(_read_document(Path(arguments.file).expanduser()), options(arguments))
    return _report(judged, as_json=arguments.output_format == "json")


def _read_document(path: Path) -> Document:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.", advice="Name a file of cases.") from None
    return read_document(data, source=str(path), advice="Correct it there.", most=_MAX_BYTES)


def _judge_cases(document: Document, chosen: Options) -> list[_JudgedCase]:
    """Judge the cases in the order of the file. Each folder that they name is opened once."""
    file = EntryReader(document, lambda key, why: None).read(CaseFile, document.located.value)
    base = (chosen.workspace or Path.cwd()).resolve()
    judged: dict[int, _JudgedCase] = {}
    for folder in dict.fromkeys(case.workspace for case in file.cases):
        cases = {index: case for index, case in enumerate(file.cases) if case.workspace == folder}
        if not (base / folder).is_dir():
            raise document.error(("cases", min(cases), "workspace"), f"there is no folder {folder!r} in {base}")

        async def judge(opened: App, cases: dict[int, Case] = cases) -> int:  # bound now: the loop changes it
            for index, case in cases.items():
                judged[index] = await _judge_case(opened, case, document, index)
            return 0

        run_app(replace(chosen, workspace=base / folder), judge)
    return [judged[index] for index in sorted(judged)]


async def _judge_case(opened: App, case: Case, document: Document, index: int) -> _JudgedCase:
    """Judge one case. Raises ConfigError for an unknown role, naming the place in the file."""
    where = document.where(("cases", index))
    try:
        role = case.role or opened.loaded.registry.default_role
        grant = opened.rights.judging_grant(role, level=case.level, login=case.user)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}", advice=error.advice) from None
    tool, call_arguments = case.call.tool, case.call.arguments
    explanation = await explain_call(opened, grant, tool, call_arguments, workspace_read=case.after_reading)
    decided_at = place_of_key(opened.loaded, explanation.deciding.key)
    return _JudgedCase(case=case, where=where, explanation=explanation, decided_at=decided_at)


def _report(judged: list[_JudgedCase], *, as_json: bool) -> int:
    differing = [result for result in judged if not result.is_expected]
    view = screen()
    if as_json:
        view.json({"cases": [_judged_json(result) for result in judged], "differing": len(differing)})
        return 1 if differing else 0
    for result in differing:
        deciding, case = result.explanation.deciding, result.case
        expected = " or ".join(case.verdict) + (f" by {case.layer}" if case.layer else "")
        by = "  ".join(filter(None, (deciding.reason, rule_of(deciding), deciding.answered_by, result.decided_at)))
        name = f" ({case.name})" if case.name else ""
        title = f"{result.where}{name}: {case.call.tool} as {case.role or 'the default role'}"
        view.answer(reveal(title, newlines=False))
        view.answer(f"  expected {expected}, found {deciding.verdict.value}, decided by {by}")
    for result in judged:
        for problem in result.explanation.problems:
            view.say(f"{result.where}: the call could not run: {problem.path}: {problem.message}")
    view.say(
        f"{plural(len(judged), 'case')}: {len(differing) or 'none'} {'differ' if len(differing) != 1 else 'differs'}."
    )
    return 1 if differing else 0


def _judged_json(result: _JudgedCase) -> JsonValue:
    deciding, case = result.explanation.deciding, result.case
    return {
        "case": result.where,
        "name": case.name,
        "role": case.role,
        "tool": case.call.tool,
        "arguments": None if case.call.arguments is None else arguments_value(case.call.arguments),
        "expected": [verdict.value for verdict in case.verdict],
        "verdict": deciding.verdict.value,
        "layer": deciding.reason,
        "rule": rule_of(deciding) or None,
        "answered_by": deciding.answered_by or None,
        "place": result.decided_at or None,
        "as_expected": result.is_expected,
    }


def _write_history(opened: App, arguments: Namespace) -> int:
    """Write the cases that follow from what users decided in this folder."""
    decided = _cases_from_decisions(opened)
    text = json.dumps({"version": 1, "cases": decided.cases}, indent=2, ensure_ascii=False)
    if arguments.file is None:
        screen().answer(text)
    else:
        write_new_private(Path(arguments.file).expanduser(), f"{text}\n".encode("utf-8", "replace"))
    screen().say(
        f"{plural(len(decided.cases), 'case')} of what was decided in {opened.workspace}"
        + (f"; {plural(decided.left_out, 'call')} of tools that are not here left out." if decided.left_out else ".")
    )
    return 0


def _cases_from_decisions(opened: App) -> _DecidedCases:
    """Return a case for each call that a user has approved or denied in this folder."""
    folder, level, left_out = str(opened.workspace), opened.rights.level, 0
    sessions = {info.id for info in opened.store.sessions(workspace=folder, limit=ALL)}
    arguments = {
        message.call_id: message.arguments
        for session in sessions
        for message in opened.store.history(session)
        if isinstance(message, ToolMessage)
    }
    verdicts: dict[tuple[str, str, str], tuple[Verdict, ...]] = {}
    for row in opened.store.decisions(limit=ALL):
        if row.call_id not in arguments or not row.by.is_person:
            continue
        if not isinstance(row.decision, Approved | Edited | Rejected):
            continue
        if opened.catalog.get(row.tool) is None:
            left_out += 1
            continue
        right = _NOT_ALLOWED if isinstance(row.decision, Rejected) else _NOT_DENIED
        key = (row.role, row.tool, arguments[row.call_id])
        # A call that was decided both ways may do neither: it has to ask.
        verdicts[key] = tuple(verdict for verdict in verdicts.get(key, right) if verdict in right)
    cases: list[JsonValue] = [
        {
            "role": role,
            "level": level.word,
            "call": {"tool": tool, "arguments": arguments_value(given)},
            "verdict": [verdict.value for verdict in expected],
        }
        for (role, tool, given), expected in verdicts.items()
        if isinstance(arguments_value(given), dict)
    ]
    return _DecidedCases(cases=cases, left_out=left_out)
