"""Facts about a pending call that the user needs before the decision, each with a label and a weight."""

import json
import posixpath
import re
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from chatops.domain.canonical import JsonValue, json_or_text
from chatops.domain.events import AskReason, PendingCall
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sandbox import NARROWEST, SandboxSpec
from chatops.domain.sanitize import reveal, show_path
from chatops.domain.tools import BUILT_IN_TOOLS, CONTAINED_APPLY, CallFacts, is_undo, tool_name
from chatops.policy.approvers import approvers_phrase
from chatops.policy.budget import LIMIT_NAMES, LimitName, amount
from chatops.policy.sandbox import describe_extra, widened
from chatops.runtime.descriptions import NO_OUTPUT, UNKNOWN_NOTE, denial_sentence, describe_processes, describe_start
from chatops.shell.effects import Danger, effects
from chatops.shell.simple_command import simple_words

_MAX_MARKS = 100
"""Marks on one line above which all of it is marked: placing each takes time in the length of the line."""
_PLAIN_NAME = r"[A-Za-z_][\w-]*"
"""An argument's name that is shown as it is; any other one is quoted as JSON."""
_LINE_ENDS = "[\v\f\x1c-\x1e\x85\u2028\u2029]|\r(?!\n)"
"""Characters besides the line feed at which a reader may break a line."""


class Weight(StrEnum):
    """Importance of a fact to the decision."""

    NOTE = "note"
    """Why the call is asked about in an unusual way: it changed, or it may have run before."""
    CALL = "call"
    """Exactly what would run or change."""
    CAUTION = "caution"
    """A reason to look twice. It has to be on the screen itself, not only scrolled past."""
    EFFECT = "effect"
    """An effect of the call, such as a file that it changes. An approval is bound to it."""
    ATTEMPT = "attempt"
    """A fact about an earlier attempt that was interrupted."""
    LACK = "lack"
    """Something that the sandbox does not have. Without it the call will probably fail."""
    SETTING = "setting"
    """A circumstance of the call, such as its folder. It is usually the same as for the previous call."""
    DETAIL = "detail"


class Form(StrEnum):
    """Layout of the value of a fact."""

    LINE = "line"
    BRIEF = "brief"
    """A line whose beginning says the most. A dialog may cut it, if its details show all of it."""
    EXACT = "exact"
    """A line in which each blank counts."""
    FILE = "file"
    """The file that a diff changes."""
    TEXT = "text"
    """Lines of which each character counts."""
    PROGRAM = "program"
    DIFF = "diff"
    FOREIGN = "foreign"
    """Lines that the model or a server wrote about the call: each has to be marked as such."""

    @property
    def one_line(self) -> bool:
        """True if the value stands beside its label."""
        return self in (Form.LINE, Form.BRIEF, Form.EXACT)


@frozen_dataclass
class Fact:
    """A labelled fact about a call. The value is untrusted text as it is: a surface makes hidden characters visible."""

    label: str
    value: str
    weight: Weight
    form: Form = Form.LINE

    @property
    def title(self) -> str:
        """The label above a value of several lines, with what the value is."""
        return _TITLES.get(self.form, "{}").format(self.label[:1].upper() + self.label[1:])


_TITLES = {Form.PROGRAM: "{}, exactly as it would run", Form.FOREIGN: "{} (own words)"}


_REASON_NOTES = {
    AskReason.CHANGED: "What was approved is no longer what would run. Look again.",
    AskReason.EDITED: "The arguments were edited: this is what would run now.",
    AskReason.COPIED: "This store was copied or moved: the call may have run in the other copy.",
}


def all_facts(pending: PendingCall, *, now: float) -> Iterator[Fact]:
    """Yield what there is to know of a call, in the order to read it. A fact without a value says nothing."""
    facts, interruption = pending.facts, pending.interruption
    if pending.reason is AskReason.BUDGET:
        yield from _budget_facts(pending)
        yield from _detail_facts(pending)
        return
    yield Fact(label="note", value=UNKNOWN_NOTE if pending.outcome_unknown else "", weight=Weight.NOTE)
    yield Fact(label="note", value=_REASON_NOTES.get(pending.reason, ""), weight=Weight.NOTE)
    denied = denial_sentence(pending.denial) if pending.denial is not None else ""
    yield Fact(label="denied", value=denied, weight=Weight.NOTE)
    approver = f"Who may let it run: {approvers_phrase(pending.approvers)}." if pending.approvers else ""
    yield Fact(label="approver", value=approver, weight=Weight.NOTE)
    yield from _call_facts(pending)
    yield from _caution_facts(facts)
    yield from _effect_facts(pending)
    if interruption is not None:
        yield Fact(label="started", value=describe_start(interruption, now=now), weight=Weight.ATTEMPT)
        yield Fact(label="processes", value=describe_processes(interruption, facts), weight=Weight.ATTEMPT)
    if not pending.outcome_unknown:
        yield from _lack_facts(facts)
    yield from _setting_facts(pending)
    if facts.server is not None:
        said = facts.server.description.strip()
        yield Fact(label="the server says", value=said or "nothing", weight=Weight.SETTING, form=Form.FOREIGN)
    if interruption is not None:
        output = interruption.output.removesuffix("\n") or NO_OUTPUT
        yield Fact(label="its output until then", value=output, weight=Weight.EFFECT, form=Form.TEXT)
    yield from _detail_facts(pending)


@frozen_dataclass
class ReachedLimit:
    """A question about a budget of which a limit is reached: may the turn spend `more`?"""

    limit: LimitName
    spent: float
    more: float


@frozen_dataclass
class UncountedModel:
    """A question about a budget that cannot count the next model: its price or tokens are not known."""

    limit: LimitName
    model: str


def budget_asks(pending: PendingCall) -> ReachedLimit | UncountedModel:
    """Return what a budget's question is about. The engine has put one of the two into its arguments."""
    given = json_or_text(pending.facts.arguments)
    values = given if isinstance(given, dict) else {}
    limit = next((name for name in LIMIT_NAMES if name == values.get("limit")), LIMIT_NAMES[0])
    if model := values.get("model"):
        return UncountedModel(limit=limit, model=str(model))
    spent, more = (
        float(part) if isinstance(part := values.get(key), int | float) else 0.0 for key in ("spent", "more")
    )
    return ReachedLimit(limit=limit, spent=spent, more=more)


def _budget_facts(pending: PendingCall) -> Iterator[Fact]:
    """Yield what was spent, and what each answer does."""
    asks, to_count = budget_asks(pending), ""
    if isinstance(asks, ReachedLimit):
        in_all = amount(asks.limit, asks.spent + asks.more)
        spends = f"cost {in_all}" if asks.limit == "cost" else f"use {in_all} {asks.limit}"
        approving = f"this turn may {spends} in all, then it asks again"
    else:
        what = "the cost" if asks.limit == "cost" else "tokens"
        approving = f"this turn goes on, and {what} of {asks.model} will not be counted"
        to_count = f'give {asks.model} a "price" in the registry' if asks.limit == "cost" else ""
    denying = "ends the turn with what it has gathered; nothing more is spent"
    rows = (("budget", pending.why), ("approving", approving), ("denying", denying), ("to count it", to_count))
    for label, value in rows:
        yield Fact(label=label, value=value, weight=Weight.EFFECT)


def _call_facts(pending: PendingCall) -> Iterator[Fact]:
    """Yield what would run or change: each argument once, as the command, in the diff, or by its name."""
    facts, name = pending.facts, "code" if pending.facts.interpreter else "command"
    yield Fact(label=name, value=facts.command, weight=Weight.CALL, form=Form.PROGRAM)
    if pending.call.name == CONTAINED_APPLY:
        what = "undoing changes" if is_undo(facts.arguments) else "changes of the contained turn"
        yield Fact(label=what, value=facts.diff, weight=Weight.CALL, form=Form.DIFF)
        return
    # A file that stays as it is, or a new empty one, has no diff, and is named all the same.
    if facts.diff or (pending.capabilities.in_diff and facts.paths):
        path = show_path(facts.relative(facts.paths[0])) if facts.paths else ""
        named = f"{path}  new file" if facts.creates else path
        yield Fact(label="file", value=named.strip(), weight=Weight.CALL, form=Form.FILE)
        yield Fact(label="change", value=facts.diff, weight=Weight.CALL, form=Form.DIFF)
    values = json_or_text(facts.arguments)
    if not isinstance(values, dict):
        yield Fact(label="arguments", value=facts.arguments, weight=Weight.CALL, form=Form.TEXT)
        return
    left = {key: value for key, value in values.items() if not _shown_elsewhere(pending, key, value)}
    label = "arguments" if len(left) == len(values) else "other arguments"
    text = "\n".join(_argument_fact(key, value) for key, value in left.items())
    yield Fact(label=label, value=text, weight=Weight.CALL, form=Form.TEXT)


def _argument_fact(key: str, value: JsonValue) -> str:
    """Return an argument, in whose value no line can look like a further one: it begins with blanks or a bracket."""
    name = key if re.fullmatch(_PLAIN_NAME, key, re.ASCII) else _to_json(key)
    if isinstance(value, str) and "\n" in value and not re.search(_LINE_ENDS, value):
        return "\n".join([f"{name}:", *(f"  | {line}".removesuffix(" " * (not line)) for line in value.split("\n"))])
    return f"{name}: {_to_json(value)}"


def _to_json(value: JsonValue) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=2 if isinstance(value, dict | list) else None)
    return re.sub(_LINE_ENDS, lambda found: f"\\u{ord(found[0]):04x}", text)


def _shown_elsewhere(pending: PendingCall, key: str, value: JsonValue) -> bool:
    """Return True if the command, the diff, the file or the timeout shows this argument, character for character."""
    facts, known = pending.facts, pending.capabilities
    if facts.command and key in ("command", "code") and value == facts.command:
        return True
    if facts.diff and key in known.in_diff:
        return True
    if key == "timeout_s" and _timeout_s(pending):
        return True
    inside = map(facts.relative, facts.paths)
    return bool(known.in_diff) and key == known.path and value in (*inside, *facts.paths)


def _timeout_s(pending: PendingCall) -> int | None:
    """Return the time limit that a call of our tools names, in seconds."""
    values = json_or_text(pending.facts.arguments)
    found = values.get("timeout_s") if isinstance(values, dict) and pending.facts.command else None
    ours = tool_name(pending.call.name) in BUILT_IN_TOOLS
    return found if ours and isinstance(found, int) and not isinstance(found, bool) else None


_WARNINGS = {
    Danger.DELETES: "{} deletes files",
    Danger.DISCARDS: "{} discards commits, branches or changes",
    Danger.PRIVILEGED: "{} runs programs as another user",
    Danger.RUNS_INPUT: "{} runs what another program prints",
    Danger.RUNS_TEXT: "{} runs program text of this command",
    Danger.USES_NETWORK: "{} uses the network",
    Danger.SECRET: "{} may hold keys or passwords",
    Danger.HOME: "{} is in the home folder",
    Danger.STEERS: "{} decides what programs run or load",
    Danger.REDEFINES: "{} gives a name another meaning",
    Danger.COMPUTED: "{} names a program that is known only when it runs",
}
"""Sentences about dangers; the facts of files and hosts show the other ones."""


def _is_shell(facts: CallFacts) -> bool:
    return bool(facts.command) and not facts.interpreter


def _caution_facts(facts: CallFacts) -> Iterator[Fact]:
    """Yield the reasons to look twice. Those of a command follow from its words alone, so some may be missing."""
    for repair in facts.repairs:
        yield Fact(label="repaired", value=repair, weight=Weight.CAUTION)
    adds = facts.delegation.adds if facts.delegation is not None else ()
    for phrase in adds:
        yield Fact(label="adds", value=phrase, weight=Weight.CAUTION)
    for warning in (facts.caution, facts.reveals, "" if adds else facts.needs_user):
        yield Fact(label="careful", value=warning, weight=Weight.CAUTION)
    hosts: tuple[str, ...] = facts.hosts
    if _is_shell(facts):
        known = effects(facts.command)
        for warned in known.warnings:
            text = _WARNINGS.get(warned.danger, "").replace("{}", warned.about)
            yield Fact(label="careful", value=text, weight=Weight.CAUTION)
        if any(warned.danger is Danger.DELETES for warned in known.warnings):
            homes = (warned.about for warned in known.warnings if warned.danger is Danger.HOME)
            for path in dict.fromkeys((*known.writes, *homes)):
                text = f"{show_path(path)} holds the whole workspace" if _holds_workspace(path, facts) else ""
                yield Fact(label="careful", value=text, weight=Weight.CAUTION)
        unclear = known.unclear and f"{known.unclear}: read the command itself"
        yield Fact(label="not clear", value=unclear, weight=Weight.CAUTION)
        hosts += known.hosts
    for host in hosts:
        yield Fact(label="contacts", value=host, weight=Weight.CAUTION, form=Form.EXACT)


def _holds_workspace(word: str, facts: CallFacts) -> bool:
    """Return True if a word of a command names the workspace, a folder above it, or all that is in one of these."""
    folder = word.strip('"').replace("$HOME", "~").removesuffix("*")
    if folder.startswith("~/") or folder == "~":
        folder = posixpath.expanduser(folder)
    place = posixpath.normpath(posixpath.join(facts.cwd or facts.workspace, folder or "."))
    return bool(facts.workspace) and f"{facts.workspace}/".startswith(place.rstrip("/") + "/")


def _effect_facts(pending: PendingCall) -> Iterator[Fact]:
    """Yield what the call touches, and what an approval is bound to.

    If the call is asked about as usual, facts that it names itself are details.
    """
    facts = pending.facts
    usual = Weight.DETAIL if pending.reason is AskReason.POLICY else Weight.EFFECT
    named = _named_paths(facts)
    for path in facts.paths if pending.call.name != CONTAINED_APPLY else ():
        weight = usual if path in named else Weight.EFFECT
        yield Fact(label="touches", value=show_path(path), weight=weight, form=Form.EXACT)
    if facts.network or facts.hosts:
        yield Fact(label="network", value="yes", weight=Weight.EFFECT)
    for credential in facts.credentials:
        yield Fact(label="can use", value=f"the secret {credential}, unseen", weight=Weight.EFFECT)
    if not _is_shell(facts):
        return
    known = effects(facts.command)
    for path in known.writes:
        yield Fact(label="writes", value=show_path(path), weight=Weight.EFFECT)
    runs = ", ".join(known.programs) if len(known.programs) > 1 else ""
    yield Fact(label="runs", value=runs, weight=Weight.DETAIL)
    bound = [path for path, _, _ in (entry.rpartition(" ") for entry in facts.hashes)]
    for path in bound:
        changes = f"if {show_path(facts.relative(path))} changes"
        yield Fact(label="asks again", value=changes, weight=usual)
    if known.loaders or known.unclear:
        programs = ", ".join(known.loaders) or "it"
        covered = "this command line and the files above, not other" if bound else "this command line, not the"
        yield Fact(label="covers", value=f"{covered} files that {programs} may load", weight=usual)


def _named_paths(facts: CallFacts) -> frozenset[str]:
    """Return those paths in the workspace that the heading or the words of the command name as they are."""
    below = facts.workspace.rstrip("/") + "/"
    words = facts.argv or simple_words(facts.command) or ()
    named = {posixpath.normpath(posixpath.join(facts.cwd or facts.workspace, word)) for word in words}
    if facts.diff:
        named.update(facts.paths[:1])
    return frozenset(path for path in named if len(below) > 1 and path.startswith(below))


def _lack_facts(facts: CallFacts) -> Iterator[Fact]:
    """Yield what a command will probably lack in its sandbox, and what the user can give it."""
    needs: dict[str, SandboxSpec] = {}
    for lack in facts.lacks:
        words = "it failed before, probably for lack of" if lack.seen else f"{lack.by} needs"
        needs[words] = widened(needs.get(words, NARROWEST), lack.needs)
    for words, spec in needs.items():
        yield Fact(label="may fail", value=f"{words} {describe_extra(spec)}", weight=Weight.LACK)
    added = f"{describe_extra(facts.extra)}, for this call only" if facts.extra != NARROWEST else ""
    yield Fact(label="+ adds", value=added, weight=Weight.EFFECT)


def _setting_facts(pending: PendingCall) -> Iterator[Fact]:
    facts, server, setting = pending.facts, pending.facts.server, Weight.SETTING
    gate = f"{pending.gate}, which passes if this succeeds" if pending.gate is not None else ""
    yield Fact(label="gate", value=gate, weight=setting)
    if server is not None:
        yield Fact(label="server", value=f"{server.name} (MCP)", weight=setting, form=Form.EXACT)
        origin = "at" if server.by_url else "started by"
        yield Fact(label=origin, value=server.origin, weight=setting, form=Form.EXACT)
        yield Fact(label="its tool", value=server.tool, weight=setting, form=Form.EXACT)
    if facts.delegation is not None:
        works_as = f"{facts.delegation.role} ({facts.delegation.model}), in a session of its own"
        yield Fact(label="works as", value=works_as, weight=setting)
    yield Fact(label="program", value=" ".join(facts.interpreter), weight=setting, form=Form.EXACT)
    cwd = show_path(facts.cwd) if facts.cwd else ""
    yield Fact(label="runs in", value=cwd, weight=setting, form=Form.EXACT)
    if seconds := _timeout_s(pending):
        yield Fact(label="timeout", value=f"{seconds} s", weight=setting)
    sandbox = facts.sandbox or ("none" if facts.command else "not needed: no program is run")
    if facts.command and not facts.sandboxed:
        yield Fact(label="sandbox", value=sandbox, weight=Weight.CAUTION)
    elif facts.delegation is None:
        yield Fact(label="sandbox", value=sandbox, weight=setting, form=Form.BRIEF)
    why = "you edited the arguments" if pending.reason is AskReason.EDITED else pending.why
    yield Fact(label="asks because", value=why, weight=setting)


def _detail_facts(pending: PendingCall) -> Iterator[Fact]:
    facts, detail = pending.facts, Weight.DETAIL
    yield Fact(label="the model says", value=pending.said.strip(), weight=detail, form=Form.FOREIGN)
    yield Fact(label="raw arguments", value=facts.arguments, weight=detail, form=Form.TEXT)
    yield Fact(label="network", value="" if facts.network or facts.hosts else "no", weight=detail)
    model = f" ({pending.model})" if pending.model else ", without a model"
    weight = Weight.SETTING if pending.caller else detail
    yield Fact(label="asked by", value=f"{asked_by(pending)}{model}", weight=weight)
    yield Fact(label="tool", value=pending.call.name, weight=detail, form=Form.EXACT)
    yield Fact(label="defined as", value=facts.definition, weight=detail, form=Form.EXACT)
    for entry in facts.hashes:
        yield Fact(label="files", value=entry, weight=detail, form=Form.EXACT)
    yield Fact(label="call", value=pending.call.id, weight=detail, form=Form.EXACT)
    yield Fact(label="digest", value=pending.digest, weight=detail, form=Form.EXACT)


def asked_by(pending: PendingCall) -> str:
    """Return the role that asks, and for whom if that is another role."""
    return f"{pending.role}, for {pending.caller}" if pending.caller else pending.role


class CommandLine(NamedTuple):
    """A line of a command with nothing hidden."""

    text: str
    marks: tuple[tuple[int, int], ...]
    """Bounds of its parts that deserve a second look."""
    is_risky: bool
    """True if such a part begins here: one of many lines has its sign once."""


def command_lines(facts: CallFacts) -> Iterator[CommandLine]:
    """Yield the lines of the command."""
    warnings = effects(facts.command).warnings if _is_shell(facts) else ()
    risky = deque(sorted({warned.span for warned in warnings}))
    begin, begins = 0, [first for first, _ in risky]
    for part in facts.command.split("\n"):
        text, end, marks = reveal(part, newlines=False, strict=True), begin + len(part), list[tuple[int, int]]()
        while risky and risky[0][0] < end:
            first, last = risky[0]
            marks.append((_revealed_index(part, first - begin), _revealed_index(part, last - begin)))
            if last > end:
                break  # It continues in the next line.
            risky.popleft()
        shown = tuple(marks) if len(marks) <= _MAX_MARKS else ((0, len(text)),)
        yield CommandLine(text, shown, is_risky=bisect_left(begins, begin) < bisect_left(begins, end))
        begin = end + 1


def _revealed_index(part: str, at: int) -> int:
    """Return where the character of a command's line at index `at` stands once the line is revealed."""
    return len(reveal(part[: max(0, at)], newlines=False, strict=True))
