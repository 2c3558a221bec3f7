"""Draws a tool call: one line with its state, what it changed or put out, and its details when opened."""

import json
import os
import time
from collections.abc import Collection, Sequence
from typing import assert_never

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from chatops.domain.decisions import deciding_login
from chatops.domain.events import PendingCall
from chatops.domain.files import shown_name
from chatops.domain.tools import (
    BUDGET_EXTEND,
    BUILT_IN_TOOLS,
    CONTAINED_APPLY,
    NOT_RUN_HERE,
    Capabilities,
    Outcome,
    built_in_capabilities,
    shown_verb,
    tool_name,
)
from chatops.domain.wording import duration, plural, spent
from chatops.policy.grant import deciding_rule
from chatops.policy.verdicts import BY_POLICY
from chatops.tui.keys import key_of
from chatops.tui.theme import BlockTheme
from chatops.tui.transcript.blocks import CardStatus, ToolCardBlock
from chatops.tui.transcript.diff import diff_lines
from chatops.tui.transcript.lines import fold, indented, one_line, prefixed, short_line, styled, truncated, wrap

# How much a folded card shows. With more, one call could fill the screen.
_MAX_WIDTH = 98
"""Maximum columns, so that its state stands near its text on a wide terminal."""
_LONGEST_FAILURE = 300
"""Columns of an error or its likely cause, which is wrapped."""
_LONGEST_ERROR_LINE = 160
"""Columns of a line of output of a failed call, which is wrapped; of other calls a line is cut to the width."""
_MAX_CHANGED = 12
"""Maximum lines of a diff."""
_LAST_LINES = 5
"""Lines of the end of an output."""
_FIRST_LINES = 2
"""Lines of the start of a result of an MCP or own tool."""
_MAX_NAMES = 3
"""Maximum names of files in the line of several reads."""
_MIN_TOOL = 8
"""Least columns for the name of a tool, so that it can be told from others in the narrowest window."""
_MIN_SUMMARY = 14
"""Least columns for the subject of a call. With less room, the state goes to a line of its own."""
_LONGEST_ARGUMENT = 400
"""Characters of an argument in the headline. What is longer than any window is not even sanitised."""
_LONGEST_REASON = 100
"""Columns of a reason in the headline."""

_MAX_LINES = 400
"""Maximum lines of a result in an opened card, taken from its start and end."""
_MAIN_ARGUMENTS = ("command", "path", "query", "url", "pattern", "code", "text")
"""Arguments that identify a call by themselves, after those that its tool declares. The first one present is used."""
clock = time.time
"""The present time, as `ToolCardBlock.started_at` counts."""


def card_lines(
    card: ToolCardBlock,
    *,
    width: int,
    theme: BlockTheme,
    expanded: bool,
    capabilities: Capabilities | None = None,
    further: Sequence[ToolCardBlock] = (),
) -> list[Text]:
    """Return the card in `width` columns, without the gutter.

    `capabilities` are those of its tool; None: those of the built-in tool of that name. `further` are the calls that
    are folded into this one.
    """
    if capabilities is None:
        capabilities = built_in_capabilities(card.tool)
    folded_width = min(width, _MAX_WIDTH)
    if further:
        return [_line_of_several([card, *further], capabilities, width=folded_width, theme=theme)]
    lines = _headline(card, capabilities, width=folded_width, theme=theme)
    if expanded:
        bar = Text(f"{theme.symbols.bar} ", theme.muted, end="")
        return lines + prefixed(_detail_lines(card, capabilities, width=width - 2, theme=theme), first=bar, rest=bar)
    return lines + indented(_folded_lines(card, capabilities, width=max(1, folded_width - 2), theme=theme), columns=2)


def may_fold(card: ToolCardBlock, capabilities: Capabilities) -> bool:
    """Return True if the call may be folded into another one of its tool: it succeeded, and nothing else is to say."""
    succeeded = card.status is CardStatus.SETTLED and card.outcome is Outcome.SUCCESS and not card.imported
    says_more = card.files or card.end.aftermath or login(card.decided_by)
    return capabilities.folds and succeeded and not says_more


def hidden_lines(count: int, theme: BlockTheme, *, noun: str = "more line") -> Text:
    """Return the line that says how many lines are not shown, and which key shows them."""
    return Text(f"{theme.symbols.ellipsis} {plural(count, noun)} ({key_of('open-block')})", theme.muted, end="")


def _line_of_several(
    cards: Sequence[ToolCardBlock], capabilities: Capabilities, *, width: int, theme: BlockTheme
) -> Text:
    """Return the one line of several calls of a tool. What was read again counts once."""
    verb = shown_verb(cards[0].tool, capabilities)
    line = Text.assemble((f"{theme.symbols.done} ", theme.good), (verb, theme.text + theme.strong), end="")
    paths = dict.fromkeys(_path(card.arguments, capabilities) for card in cards)
    names = [one_line(path) for path in paths]
    count = plural(sum({card.arguments: card.count or 0 for card in cards}.values()), *capabilities.counts)
    if len(names) < len(cards):
        count = f"{plural(len(cards), verb.lower())}, {count}"
    took = duration(sum(card.duration_ms for card in cards))
    names_width = width - line.cell_len - cell_len(f"    {count}  {took}")
    line.append(f"  {_list_names(names, width=names_width)}", theme.text).append(f"  {count}", theme.muted)
    return _with_right_part(line, Text(took, theme.muted, end=""), width=width)


def _list_names(names: Sequence[str], *, width: int) -> str:
    """Return as many of the names of files as fit, at most `_MAX_NAMES`, and how many more there are."""
    for count in range(min(len(names), _MAX_NAMES), 0, -1):
        left_out = len(names) - count
        text = ", ".join(names[:count]) + (f" and {left_out} more" if left_out else "")
        if cell_len(text) <= width:
            return text
    return plural(len(names), "file")


def pending_verb(pending: PendingCall) -> str:
    """Return the name to show for the tool of a pending call."""
    return shown_verb(pending.call.name, pending.capabilities, pending.call.arguments)


def _is_ours(tool: str) -> bool:
    return tool_name(tool) in BUILT_IN_TOOLS


def _headline(card: ToolCardBlock, capabilities: Capabilities, *, width: int, theme: BlockTheme) -> list[Text]:
    """Return sign, tool, subject, counts and state of a call: on one line, or the state below if there is no room."""
    sign, style = sign_of(card, theme)
    is_fine = card.outcome is Outcome.SUCCESS or card.status is CardStatus.RUNNING
    state = Text(status_words(card, theme.symbols.dot), theme.muted if is_fine else style, end="")
    subject, counts = _subject(card, capabilities), _counts(card, capabilities, theme)
    # The name of a tool is cut only if it takes the room of the others, and keeps a third of the line.
    others = sum(cell_len(text) + 2 for text in (sign, subject, counts.plain, state.plain) if text)
    verb = shown_verb(card.tool, capabilities, card.arguments)
    tool = truncated(verb, width=max(_MIN_TOOL, width // 3, width - others), ellipsis=theme.symbols.ellipsis)
    line = Text.assemble((f"{sign} ", style), (tool, theme.text + theme.strong), end="")
    room = width - line.cell_len - 2 - (counts.cell_len + 2 if counts.plain else 0)
    room_beside_state = room - state.cell_len - 2
    is_one_line = room_beside_state >= min(_MIN_SUMMARY, cell_len(subject))
    if subject:
        subject_width = max(1, room_beside_state if is_one_line else room)
        line.append("  ").append(truncated(subject, width=subject_width, ellipsis=theme.symbols.ellipsis), theme.text)
    if counts.plain:
        line.append("  ").append_text(counts)
    if is_one_line:
        return [_with_right_part(line, state, width=width)]
    return [line, *indented(wrap(state, width=width - 2), columns=2)]


def _with_right_part(line: Text, part: Text, *, width: int) -> Text:
    """Return the line with `part` at the right end of `width` columns."""
    return line.append(" " * (width - line.cell_len - part.cell_len)).append_text(part)


def _subject(card: ToolCardBlock, capabilities: Capabilities) -> str:
    """Return what the call is about, on one line: without the arguments that its diff shows."""
    if card.tool == BUDGET_EXTEND:
        return ""
    if card.tool == CONTAINED_APPLY:
        only = (parsed_arguments(card.arguments) or {}).get("only")
        chosen = [path for path in card.paths if not isinstance(only, list) or path in only]
        return one_line(", ".join(chosen)[:_LONGEST_ARGUMENT])
    return argument_summary(
        card.arguments,
        without=capabilities.in_diff if capabilities.writes or card.diff else (),
        lead=(capabilities.command, capabilities.code, capabilities.url, capabilities.path),
    )


def _counts(card: ToolCardBlock, capabilities: Capabilities, theme: BlockTheme) -> Text:
    """Return how much the call has changed or found."""
    counts = Text(end="")
    if card.added or card.removed:
        counts.append(f"+{card.added} " if card.added else "", theme.good)
        counts.append(f"{theme.symbols.minus}{card.removed}" if card.removed else "", theme.bad)
        counts.rstrip()
    elif card.files:
        return counts
    elif card.count is not None and capabilities.counts[0]:
        counts.append(one_line(plural(card.count, *capabilities.counts)), theme.muted)
    return counts


def _folded_lines(card: ToolCardBlock, capabilities: Capabilities, *, width: int, theme: BlockTheme) -> list[Text]:
    """Return what is shown of a folded card below its headline."""
    end, ellipsis = card.end, theme.symbols.ellipsis
    lines: list[Text] = []
    if card.diff:
        lines += _first_changes(card, capabilities, width=width, theme=theme)
    output = card.output if card.status is CardStatus.RUNNING else end.tail
    lines += _last_lines(output, width=width, theme=theme, whole=card.outcome is Outcome.FAILED)
    if card.outcome is Outcome.SUCCESS and not end.tail and not _is_ours(card.tool):
        lines += _first_lines(card.output, width=width, theme=theme)
    if end.error_line:
        failure = short_line(end.error_line, width=_LONGEST_FAILURE, ellipsis=ellipsis)
        lines += wrap(Text(failure, theme.text, end=""), width=width)
    lines += _file_lines(card, capabilities, width=width, theme=theme)
    if end.likely_cause:
        cause = short_line(end.likely_cause, width=_LONGEST_FAILURE, ellipsis=ellipsis)
        lines += wrap(Text(f"Likely cause: {cause}", theme.warn, end=""), width=width)
    return lines


def _file_lines(card: ToolCardBlock, capabilities: Capabilities, *, width: int, theme: BlockTheme) -> list[Text]:
    """Return one line for each file that the call returned, without the name that the headline has."""
    named = shown_name(_path(card.arguments, capabilities))
    texts = (file.about if shown_name(file.path) == named else str(file) for file in card.files)
    return [Text(short_line(text, width=width, ellipsis=theme.symbols.ellipsis), theme.text, end="") for text in texts]


def _first_changes(card: ToolCardBlock, capabilities: Capabilities, *, width: int, theme: BlockTheme) -> list[Text]:
    """Return the first lines of the card's diff, cut to the width."""
    name = _path(card.arguments, capabilities)
    lines, shown = diff_lines(card.diff, name=name, width=width, theme=theme, most=_MAX_CHANGED, whole=False)
    if (hidden := card.added + card.removed - shown) > 0:
        lines.append(hidden_lines(hidden, theme))
    return lines


def _last_lines(output: str, *, width: int, theme: BlockTheme, whole: bool) -> list[Text]:
    """Return the last lines of an output, cut to the width, or wrapped if `whole`."""
    lines = output.rstrip().split("\n") if output.strip() else []
    # A program that draws a bar of its progress writes over its line; the last state is what it shows.
    last = []
    for line in lines[-_LAST_LINES:]:
        _, _, state = styled((line, theme.muted)).plain.rpartition("␍")
        last.append(state)
    longest = _LONGEST_ERROR_LINE if whole else width
    shown = [truncated(line, width=longest, ellipsis=theme.symbols.ellipsis) for line in last]
    drawn = [part for line in shown for part in wrap(Text(line, theme.muted, end=""), width=width)]
    if (hidden := len(lines) - _LAST_LINES) > 0:
        drawn.insert(0, hidden_lines(hidden, theme, noun="earlier line"))
    return drawn


def _first_lines(result: str, *, width: int, theme: BlockTheme) -> list[Text]:
    """Return the first lines of the result of an MCP or own tool, cut to the width."""
    lines = [line for line in result.split("\n") if line.strip()]
    first = [styled((line, theme.muted)).plain for line in lines[:_FIRST_LINES]]
    shown = [Text(truncated(line, width=width, ellipsis=theme.symbols.ellipsis), theme.muted, end="") for line in first]
    if (hidden := len(lines) - _FIRST_LINES) > 0:
        shown.append(hidden_lines(hidden, theme))
    return shown


def _detail_lines(card: ToolCardBlock, capabilities: Capabilities, *, width: int, theme: BlockTheme) -> list[Text]:
    """Return what is shown of an opened card below its headline."""
    facts = []
    if capabilities.verb and not _is_ours(card.tool):
        facts.append(("tool", card.tool))
    if card.asks_because and card.status in (CardStatus.WAITING, CardStatus.UNKNOWN_WAITING):
        facts.append(("asks because", card.asks_because))
    if card.decided_by:
        facts.append(("decided by", card.decided_by))
    if card.end.likely_cause:
        facts.append(("likely cause", card.end.likely_cause))
    lines: list[Text] = []
    for name, value in facts:
        lines.extend(fold(styled((f"{name}: ", theme.muted), (value, theme.text)), width=width))
    lines.extend(_argument_lines(card.arguments, width=width, theme=theme))
    if card.diff:
        changed, shown = diff_lines(
            card.diff, name=_path(card.arguments, capabilities), width=width, theme=theme, most=_MAX_LINES, whole=True
        )
        total = card.added + card.removed
        label = f"change (the first {plural(shown, 'line')} of {total}):" if total > shown else "change:"
        lines.extend([Text(label, theme.muted, end=""), *changed])
    lines.extend(_file_lines(card, capabilities, width=width, theme=theme))
    if not card.output:
        if card.status is CardStatus.SETTLED:
            lines.append(Text("(no output)", theme.muted, end=""))
        return lines
    label = "result" if card.status is CardStatus.SETTLED else "output so far"
    label += " (shortened)" if card.truncated else ""
    lines.append(Text(f"{label}:", theme.muted, end=""))
    lines.extend(_cap_lines(fold(styled((card.output.rstrip("\n"), theme.text)), width=width), theme=theme))
    return lines


def _argument_lines(arguments: str, *, width: int, theme: BlockTheme) -> list[Text]:
    """Return each argument with its name. Text stands as it is, below its name if it has several lines."""
    values = parsed_arguments(arguments)
    if values is None:
        return fold(styled(("arguments: ", theme.muted), (arguments, theme.text)), width=width)
    lines: list[Text] = []
    for name, value in values.items():
        label = f"{one_line(str(name))}: "
        text = (value if isinstance(value, str) else _short_json(value)).rstrip("\n")
        if "\n" not in text:
            lines.extend(fold(styled((label, theme.muted), (text, theme.text)), width=width))
            continue
        lines.append(Text(label.rstrip(), theme.muted, end=""))
        folded = fold(styled((text, theme.text)), width=max(1, width - 2))
        lines.extend(indented(_cap_lines(folded, theme=theme), columns=2))
    return lines


def _cap_lines(lines: list[Text], *, theme: BlockTheme) -> list[Text]:
    """Return at most `_MAX_LINES` of the lines: the first and the last ones, and how many are left out between."""
    if len(lines) <= _MAX_LINES:
        return lines
    half = _MAX_LINES // 2
    left_out = Text(f"({len(lines) - 2 * half} lines omitted)", theme.muted, end="")
    return [*lines[:half], left_out, *lines[-half:]]


def argument_summary(arguments: str, *, without: Collection[str] = (), lead: Sequence[str] = ()) -> str:
    """Return the subject of a call: its main argument bare, the others but `without` as ``name=value``.

    The main one is the first of `lead` and `_MAIN_ARGUMENTS` that is given. Arguments that are no JSON object are
    returned as written.
    """
    values = parsed_arguments(arguments)
    if values is None:
        return one_line(arguments[:_LONGEST_ARGUMENT])
    shown = {name: value for name, value in values.items() if name not in without}
    main = next((name for name in (*lead, *_MAIN_ARGUMENTS) if isinstance(shown.get(name), str)), None)
    parts = [] if main is None else [str(shown.pop(main))]
    parts.extend(f"{name}={value if isinstance(value, str) else _short_json(value)}" for name, value in shown.items())
    return "  ".join(one_line(part[:_LONGEST_ARGUMENT]) for part in parts)[:_LONGEST_ARGUMENT]


def _path(arguments: str, capabilities: Capabilities) -> str:
    """Return the path that a call names; empty if it names none."""
    path = (parsed_arguments(arguments) or {}).get(capabilities.path or "path", "")
    return path if isinstance(path, str) else ""


def parsed_arguments(arguments: str) -> dict[str, object] | None:
    """Return the arguments of a call by their names; None if they are no JSON object."""
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def _short_json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)[:_LONGEST_ARGUMENT]
    except RecursionError:
        # The model has written it: it may be nested too deeply.
        return "…"


def sign_of(card: ToolCardBlock, theme: BlockTheme) -> tuple[str, Style]:
    """Return the sign before the call, and its style."""
    signs = theme.symbols
    match card.status:
        case CardStatus.UNSETTLED | CardStatus.PERMITTED:
            return signs.unsettled, theme.muted
        case CardStatus.WAITING | CardStatus.HELD:
            return signs.waiting, theme.warn
        case CardStatus.UNKNOWN_WAITING:
            return signs.unknown, theme.bad
        case CardStatus.RUNNING:
            return signs.running, theme.link + Style(underline=False)
        case CardStatus.SETTLED if card.imported:
            return signs.unsettled, theme.muted
        case CardStatus.SETTLED if card.left_out:
            return signs.minus, theme.muted
        case CardStatus.SETTLED:
            if card.outcome is Outcome.SUCCESS:
                return signs.done, theme.good
            if card.outcome is Outcome.UNKNOWN:
                return signs.unknown, theme.bad
            return signs.failed, theme.bad
        case _ as never:
            assert_never(never)


def status_words(card: ToolCardBlock, dot: str) -> str:
    """Return the state of the call in words; `dot` separates them. There are none until it asks or runs."""
    match card.status:
        case CardStatus.UNSETTLED:
            return ""
        case CardStatus.PERMITTED:
            return f"{_permission_words(card.decided_by)}, runs after the calls before it"
        case CardStatus.WAITING:
            return "approval pending"
        case CardStatus.HELD:
            return "still pending, cannot be approved or run here"
        case CardStatus.UNKNOWN_WAITING:
            return "outcome unknown, decision pending"
        case CardStatus.RUNNING:
            return _running_words(card, dot)
        case CardStatus.SETTLED:
            return _result_words(card, dot)
        case _ as never:
            assert_never(never)


def _running_words(card: ToolCardBlock, dot: str) -> str:
    """Return how long a running call has taken and how to stop it, from one second on."""
    seconds = int(clock() - card.started_at) if card.started_at else 0
    return f"{spent(seconds)} {dot} Esc to stop" if seconds >= 1 else "running"


def _permission_words(decided_by: str) -> str:
    if user := login(decided_by):
        return f"approved by {user}"
    return "allowed" if decided_by == BY_POLICY else f"allowed by {deciding_rule(decided_by) or 'a rule'}"


def _result_words(card: ToolCardBlock, dot: str) -> str:
    if card.imported:
        claimed = "" if card.outcome in (None, Outcome.SUCCESS) else f" {dot} {card.outcome.value}"
        return f"{NOT_RUN_HERE}{claimed}"
    if card.left_out:
        return "left out"
    match card.outcome:
        case None:
            return "no result"
        case Outcome.SUCCESS:
            rule = one_line(deciding_rule(card.decided_by))
            by = ""
            if rule:
                by = f"allowed by {rule}"
            elif login(card.decided_by) and not card.own:
                by = "approved"
            return (f"{by} {dot} " if by else "") + duration(card.duration_ms) + _aftermath_words(card)
        case Outcome.FAILED:
            return _failure_words(card, dot)
        case Outcome.INVALID:
            return f"not run: {_reason_line(card)}" if card.end.ended_because else "not run: invalid call"
        case Outcome.DENIED:
            return _denial_words(card)
        case Outcome.INTERRUPTED:
            stopped = f"interrupted {dot} {duration(card.duration_ms)}" if card.duration_ms else "interrupted"
            return f"not run: {one_line(card.end.ended_because)}" if card.end.ended_because else stopped
        case Outcome.UNKNOWN:
            return "outcome unknown"
        case _ as never:
            assert_never(never)


def _failure_words(card: ToolCardBlock, dot: str) -> str:
    ended = one_line(card.end.ended_because) or "failed"
    words = ended if card.end.timed_out else f"{ended} {dot} {duration(card.duration_ms)}"
    return words + _aftermath_words(card)


def _aftermath_words(card: ToolCardBlock) -> str:
    aftermath = short_line(card.end.aftermath, width=_LONGEST_REASON, ellipsis="…")
    return (f", {aftermath}" if aftermath.strip() else "") + (", result shortened" if card.truncated else "")


def _denial_words(card: ToolCardBlock) -> str:
    by = login(card.decided_by) or one_line(card.decided_by)
    words = f"not run, denied by {by}" if by else "not run, denied"
    return f'{words}: "{_reason_line(card)}"' if card.end.ended_because.strip() else words


def _reason_line(card: ToolCardBlock) -> str:
    return short_line(card.end.ended_because, width=_LONGEST_REASON, ellipsis="…")


def login(decided_by: str) -> str:
    """Return "you" or the login of another user who decided; empty if it was not a user."""
    name = deciding_login(decided_by)
    return "you" if name and decided_by.startswith(f"uid {os.getuid()} (") else one_line(name)
