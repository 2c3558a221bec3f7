"""Draws a tool call: one line with its state, what it changed or put out, and its details when opened."""

import json
import os
import time
from collections.abc import Collection, Mapping, Sequence
from typing import assert_never

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from chatops.domain.decisions import deciding_login
from chatops.domain.events import PendingCall
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
from chatops.policy.verdicts import BY_POLICY
from chatops.tui.keys import key_of
from chatops.tui.theme import BlockTheme
from chatops.tui.transcript.blocks import CardStatus, ToolCardBlock
from chatops.tui.transcript.diff import diff_lines
from chatops.tui.transcript.lines import fold, one_line, prefixed, styled, truncated, wrap

_WIDEST = 98
"""Maximum columns of a folded card, so that its state stands near its text on a wide terminal."""
_LONGEST_FAILURE = 300
"""Columns of an error or its likely cause, which is wrapped."""
_LONGEST_ERROR_LINE = 160
"""Characters of a line of output of a failed call, which is wrapped; of other calls a line is cut to the width."""
_MAX_LINES = 400
"""Maximum lines of a result in an opened card, taken from its start and end."""
_MAX_CHANGED = 12
"""Maximum lines of a diff in a folded card."""
_LAST_LINES = 5
"""Lines of output in a folded card."""
_FIRST_LINES = 2
"""Lines of the result of an MCP or own tool in a folded card."""
_MAX_NAMES = 3
"""Names of files in the line of several reads."""
_MIN_SUMMARY = 14
"""Columns for the subject of a call. With less room, the state goes to a line of its own."""
_LONGEST_ARGUMENT = 400
"""Characters of an argument in the headline."""
_MAIN_ARGUMENTS = ("command", "path", "query", "url", "pattern", "code", "text")
"""Arguments that identify a call by themselves, after those that its tool declares. The first one present is used."""
clock = time.time
"""The present time, as `ToolCardBlock.started_at` counts."""
_LONGEST_REASON = 100
"""Columns of a reason in the headline."""


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
    room = min(width, _WIDEST)
    if further:
        return _folded_line([card, *further], capabilities, width=room, theme=theme)
    lines = _headline_text(card, capabilities, width=room, theme=theme)
    if expanded:
        bar = Text(f"{theme.symbols.bar} ", theme.muted, end="")
        lines.extend(prefixed(_detail_rows(card, capabilities, width=width - 2, theme=theme), first=bar, rest=bar))
    else:
        indent = Text("  ", end="")
        lines.extend(
            prefixed(_body(card, capabilities, width=max(1, room - 2), theme=theme), first=indent, rest=indent)
        )
    return lines


def may_fold(card: ToolCardBlock, capabilities: Capabilities) -> bool:
    """Return True if the call may be folded into another one of its tool: it succeeded, and nothing else is to say."""
    done = card.status is CardStatus.SETTLED and card.outcome is Outcome.SUCCESS and not card.files
    return capabilities.folds and done and not card.imported and not card.end.aftermath and not login(card.decided_by)


def _folded_line(
    cards: Sequence[ToolCardBlock], capabilities: Capabilities, *, width: int, theme: BlockTheme
) -> list[Text]:
    """Return the one line of several calls of a tool."""
    name = shown_verb(cards[0].tool, capabilities)
    line = Text.assemble((f"{theme.symbols.done} ", theme.good), (name, theme.text + theme.strong), end="")
    counted = plural(sum(card.count or 0 for card in cards), *capabilities.counts)
    words = duration(sum(card.duration_ms for card in cards))
    names = [one_line(name) for name in dict.fromkeys(_path(card.arguments, capabilities) for card in cards)]
    room = width - line.cell_len - cell_len(f"    {counted}  {words}")
    line.append(f"  {_list_names(names, width=room)}", theme.text).append(f"  {counted}", theme.muted)
    return [_right_aligned(line, Text(words, theme.muted, end=""), width=width)]


def _list_names(names: Sequence[str], *, width: int) -> str:
    """Return as many of the names of files as fit, at most `_MAX_NAMES`, and how many more there are."""
    for count in range(min(len(names), _MAX_NAMES), 0, -1):
        more = len(names) - count
        text = ", ".join(names[:count]) + (f" and {more} more" if more else "")
        if cell_len(text) <= width:
            return text
    return plural(len(names), "file")


def pending_verb(pending: PendingCall) -> str:
    """Return the name to show for the tool of a pending call."""
    return shown_verb(pending.call.name, pending.capabilities, pending.call.arguments)


def _is_ours(tool: str) -> bool:
    return tool_name(tool) in BUILT_IN_TOOLS


def _headline_text(card: ToolCardBlock, capabilities: Capabilities, *, width: int, theme: BlockTheme) -> list[Text]:
    sign, style = sign_of(card, theme)
    words, summary, counts = (
        status_words(card, theme.symbols.dot),
        _subject(card, capabilities),
        _counts(card, capabilities, theme),
    )
    others = sum(cell_len(text) + 2 for text in (sign, summary, counts.plain, words) if text)
    room = max(8, width // 3, width - others)
    tool = truncated(shown_verb(card.tool, capabilities, card.arguments), width=room, ellipsis=theme.symbols.ellipsis)
    line = Text.assemble((f"{sign} ", style), (tool, theme.text + theme.strong), end="")
    used = cell_len(line.plain) + (counts.cell_len + 2 if counts.plain else 0)
    room = width - used - 2 - (cell_len(words) + 2)
    status_below = room < min(_MIN_SUMMARY, cell_len(summary))
    if status_below:
        room = width - used - 2
    if summary:
        line.append("  ")
        line.append(truncated(summary, width=max(1, room), ellipsis=theme.symbols.ellipsis), theme.text)
    if counts.plain:
        line.append("  ").append_text(counts)
    is_fine = card.outcome is Outcome.SUCCESS or card.status is CardStatus.RUNNING
    status = Text(words, theme.muted if is_fine else style, end="")
    if status_below:
        indent = Text("  ", end="")
        return [line, *prefixed(wrap(status, width=width - 2), first=indent, rest=indent)]
    return [_right_aligned(line, status, width=width)]


def _right_aligned(line: Text, words: Text, *, width: int) -> Text:
    line.append(" " * (width - line.cell_len - words.cell_len))
    return line.append_text(words)


def _subject(card: ToolCardBlock, capabilities: Capabilities) -> str:
    """Return what the call is about, on one line: without the arguments that its diff shows."""
    if card.tool == BUDGET_EXTEND:
        return ""
    if card.tool == CONTAINED_APPLY:
        only = (parsed_arguments(card.arguments) or {}).get("only")
        chosen = [path for path in card.paths if not isinstance(only, list) or path in only]
        return one_line(", ".join(chosen)[:_LONGEST_ARGUMENT])
    hidden = capabilities.in_diff if capabilities.writes or card.diff else ()
    return argument_summary(
        card.arguments,
        without=hidden,
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


def _body(card: ToolCardBlock, capabilities: Capabilities, *, width: int, theme: BlockTheme) -> list[Text]:
    """Return what is shown of a folded card below its headline."""
    lines: list[Text] = []
    if card.diff:
        lines.extend(_diff_rows(card, capabilities, width=width, theme=theme))
    output = card.output if card.status is CardStatus.RUNNING else card.end.tail
    lines.extend(_last_lines(output, width=width, theme=theme, whole=card.outcome is Outcome.FAILED))
    if card.outcome is Outcome.SUCCESS and not card.end.tail and not _is_ours(card.tool):
        lines.extend(_first_lines(card.output, width=width, theme=theme))
    if card.end.error_line:
        failure = truncated(one_line(card.end.error_line), width=_LONGEST_FAILURE, ellipsis=theme.symbols.ellipsis)
        lines.extend(wrap(Text(failure, theme.text, end=""), width=width))
    lines.extend(_files(card, width=width, theme=theme))
    if card.end.likely_cause:
        cause = truncated(one_line(card.end.likely_cause), width=_LONGEST_FAILURE, ellipsis=theme.symbols.ellipsis)
        lines.extend(wrap(Text(f"Likely cause: {cause}", theme.warn, end=""), width=width))
    return lines


def _files(card: ToolCardBlock, *, width: int, theme: BlockTheme) -> list[Text]:
    """Return one line for each file that the call returned."""
    names = (truncated(one_line(str(file)), width=width, ellipsis=theme.symbols.ellipsis) for file in card.files)
    return [Text(name, theme.text, end="") for name in names]


def _diff_rows(card: ToolCardBlock, capabilities: Capabilities, *, width: int, theme: BlockTheme) -> list[Text]:
    name = _path(card.arguments, capabilities)
    lines, shown = diff_lines(card.diff, name=name, width=width, theme=theme, most=_MAX_CHANGED, whole=False)
    if (more := card.added + card.removed - shown) > 0:
        lines.append(
            Text(
                f"{theme.symbols.ellipsis} {plural(more, 'more line')} ({key_of('open-block')})",
                theme.muted,
                end="",
            )
        )
    return lines


def _last_lines(output: str, *, width: int, theme: BlockTheme, whole: bool) -> list[Text]:
    """Return the last lines of an output, cut to the width, or wrapped if `whole`."""
    lines = output.rstrip().split("\n") if output.strip() else []
    last = [styled((line, theme.muted)) for line in lines[-_LAST_LINES:]]
    # A program that draws a bar of its progress writes over its line; the last state is what it shows.
    most = _LONGEST_ERROR_LINE if whole else width
    shown = [truncated(line.plain.rpartition("␍")[2], width=most, ellipsis=theme.symbols.ellipsis) for line in last]
    drawn = [part for line in shown for part in wrap(Text(line, theme.muted, end=""), width=width)]
    if (more := len(lines) - _LAST_LINES) > 0:
        earlier = f"{theme.symbols.ellipsis} {plural(more, 'earlier line')} ({key_of('open-block')})"
        drawn.insert(0, Text(earlier, theme.muted, end=""))
    return drawn


def _first_lines(result: str, *, width: int, theme: BlockTheme) -> list[Text]:
    """Return the first lines of the result of an MCP or own tool, cut to the width."""
    lines = [line for line in result.split("\n") if line.strip()]
    first = [styled((line, theme.muted)) for line in lines[:_FIRST_LINES]]
    shown = [truncated(line.plain, width=width, ellipsis=theme.symbols.ellipsis) for line in first]
    if (more := len(lines) - _FIRST_LINES) > 0:
        shown.append(f"{theme.symbols.ellipsis} {plural(more, 'more line')} ({key_of('open-block')})")
    return [Text(line, theme.muted, end="") for line in shown]


def _detail_rows(card: ToolCardBlock, capabilities: Capabilities, *, width: int, theme: BlockTheme) -> list[Text]:
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
    lines.extend(_arguments(card.arguments, width=width, theme=theme))
    if card.diff:
        changed, shown = diff_lines(
            card.diff, name=_path(card.arguments, capabilities), width=width, theme=theme, most=_MAX_LINES, whole=True
        )
        more = card.added + card.removed - shown
        label = f"change (the first {plural(shown, 'line')} of {card.added + card.removed}):" if more > 0 else "change:"
        lines.extend([Text(label, theme.muted, end=""), *changed])
    lines.extend(_files(card, width=width, theme=theme))
    if not card.output:
        if card.status is CardStatus.SETTLED:
            lines.append(Text("(no output)", theme.muted, end=""))
        return lines
    label = "result" if card.status is CardStatus.SETTLED else "output so far"
    label += " (shortened)" if card.truncated else ""
    lines.append(Text(f"{label}:", theme.muted, end=""))
    lines.extend(_cap_rows(fold(styled((card.output.rstrip("\n"), theme.text)), width=width), theme=theme))
    return lines


def _arguments(arguments: str, *, width: int, theme: BlockTheme) -> list[Text]:
    """Return each argument with its name. Text stands as it is, below its name if it has several lines."""
    given = parsed_arguments(arguments)
    if given is None:
        return fold(styled(("arguments: ", theme.muted), (arguments, theme.text)), width=width)
    lines: list[Text] = []
    for name, value in given.items():
        label = f"{one_line(str(name))}: "
        text = value if isinstance(value, str) else _short_text(value)
        if "\n" not in text.rstrip("\n"):
            lines.extend(fold(styled((label, theme.muted), (text.rstrip("\n"), theme.text)), width=width))
            continue
        lines.append(Text(label.rstrip(), theme.muted, end=""))
        indent = Text("  ", end="")
        whole = fold(styled((text.rstrip("\n"), theme.text)), width=max(1, width - 2))
        lines.extend(prefixed(_cap_rows(whole, theme=theme), first=indent, rest=indent))
    return lines


def _cap_rows(lines: list[Text], *, theme: BlockTheme) -> list[Text]:
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
    given = parsed_arguments(arguments)
    if given is None:
        return one_line(arguments[:_LONGEST_ARGUMENT])
    named = {key: value for key, value in given.items() if key not in without}
    main = next((key for key in (*lead, *_MAIN_ARGUMENTS) if isinstance(named.get(key), str)), None)
    parts = [] if main is None else [str(named.pop(main))]
    parts.extend(f"{key}={value if isinstance(value, str) else _short_text(value)}" for key, value in named.items())
    return "  ".join(one_line(part[:_LONGEST_ARGUMENT]) for part in parts)[:_LONGEST_ARGUMENT]


def _path(arguments: str, capabilities: Capabilities) -> str:
    """Return the path that a call names; empty if it names none."""
    path = (parsed_arguments(arguments) or {}).get(capabilities.path or "path", "")
    return path if isinstance(path, str) else ""


def parsed_arguments(arguments: str) -> dict[str, object] | None:
    """Return the arguments of a call by their names; None if they are no JSON object."""
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return dict(given) if isinstance(given, Mapping) else None


def _short_text(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)[:_LONGEST_ARGUMENT]
    except RecursionError:
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
        case CardStatus.SETTLED:
            if card.outcome is Outcome.SUCCESS:
                return signs.done, theme.good
            if card.outcome is Outcome.UNKNOWN:
                return signs.unknown, theme.bad
            return signs.failed, theme.bad
        case _ as never:
            assert_never(never)


def status_words(card: ToolCardBlock, dot: str) -> str:
    """Return the state of the call in words; `dot` separates them."""
    match card.status:
        case CardStatus.UNSETTLED:
            return "no result yet"
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
    return "allowed" if decided_by == BY_POLICY else "allowed by a rule"


def _result_words(card: ToolCardBlock, dot: str) -> str:
    if card.imported:
        claimed = "" if card.outcome in (None, Outcome.SUCCESS) else f" {dot} {card.outcome.value}"
        return f"{NOT_RUN_HERE}{claimed}"
    match card.outcome:
        case None:
            return "no result"
        case Outcome.SUCCESS:
            approved = f"approved {dot} " if login(card.decided_by) and not card.own else ""
            return approved + duration(card.duration_ms) + _aftermath_words(card)
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
    aftermath = truncated(one_line(card.end.aftermath), width=_LONGEST_REASON, ellipsis="…")
    return (f", {aftermath}" if aftermath.strip() else "") + (", result shortened" if card.truncated else "")


def _denial_words(card: ToolCardBlock) -> str:
    by = login(card.decided_by) or one_line(card.decided_by)
    words = f"not run, denied by {by}" if by else "not run, denied"
    return f'{words}: "{_reason_line(card)}"' if card.end.ended_because.strip() else words


def _reason_line(card: ToolCardBlock) -> str:
    return truncated(one_line(card.end.ended_because), width=_LONGEST_REASON, ellipsis="…")


def login(decided_by: str) -> str:
    """Return "you" or the login of another user who decided; empty if it was not a user."""
    name = deciding_login(decided_by)
    return "you" if name and decided_by.startswith(f"uid {os.getuid()} (") else one_line(name)
