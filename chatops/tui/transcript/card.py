"""Draws a tool call: one line with its state, and its details when opened.

A call that did not run never looks as if it had. Its words say so, in addition to sign and colour.
"""

import json
import re
from collections.abc import Mapping
from typing import assert_never

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from chatops.domain.tools import Outcome
from chatops.policy.verdicts import BY_POLICY
from chatops.tui.theme import BlockTheme
from chatops.tui.transcript.blocks import CardStatus, ToolCardBlock
from chatops.tui.transcript.lines import fold, one_line, prefixed, styled, truncated, wrap

_LONGEST_REASON = 100
_LONGEST_FAILURE = 300
_MOST_LINES = 400
"""Maximum lines of a result in an opened card, taken from its start and end."""
_LEAST_SUMMARY = 14
_LONGEST_ARGUMENT = 400
_TELLING = ("command", "path", "query", "url", "pattern", "code", "text")
"""Arguments that identify a call by themselves. The first one present is used."""
_PRINCIPAL = re.compile(r"uid \d+ \((?P<login>.+)\)(?: via \w+)?")


def card_lines(card: ToolCardBlock, *, width: int, theme: BlockTheme, expanded: bool) -> list[Text]:
    """Return the card in `width` columns, without the gutter."""
    lines = _headline(card, width=width, theme=theme)
    if expanded:
        bar = Text(f"{theme.symbols.bar} ", theme.muted, end="")
        lines.extend(prefixed(_details(card, width=width - 2, theme=theme), first=bar, rest=bar))
    return lines


def _headline(card: ToolCardBlock, *, width: int, theme: BlockTheme) -> list[Text]:
    sign, style = _sign(card, theme)
    tool = truncated(one_line(card.tool) or "(no name)", width=max(8, width // 3), ellipsis=theme.symbols.ellipsis)
    line = Text.assemble((f"{sign} ", style), (tool, theme.text + theme.strong), end="")
    words, summary = _words(card), argument_summary(card.arguments)
    used = cell_len(line.plain)
    room = width - used - 2 - (cell_len(words) + 2)
    below = room < min(_LEAST_SUMMARY, cell_len(summary))
    if below:
        room = width - used - 2
    if summary:
        line.append("  ")
        line.append(truncated(summary, width=room, ellipsis=theme.symbols.ellipsis), theme.text)
    plain = card.outcome is Outcome.SUCCESS
    text = Text(words, theme.muted if plain else style, end="")
    if below:
        indent = Text("  ", end="")
        return [line, *prefixed(wrap(text, width=width - 2), first=indent, rest=indent)]
    line.append(" " * (width - cell_len(line.plain) - cell_len(words)))
    line.append_text(text)
    return [line]


def _sign(card: ToolCardBlock, theme: BlockTheme) -> tuple[str, Style]:
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
        case CardStatus.SETTLED:
            if card.outcome is Outcome.SUCCESS:
                return signs.done, theme.good
            if card.outcome is Outcome.UNKNOWN:
                return signs.unknown, theme.bad
            return signs.failed, theme.bad
        case _ as never:
            assert_never(never)


def _words(card: ToolCardBlock) -> str:
    match card.status:
        case CardStatus.UNSETTLED:
            return "no result yet"
        case CardStatus.PERMITTED:
            return f"{_permission(card.decided_by)}, runs after the calls before it"
        case CardStatus.WAITING:
            return "approval pending"
        case CardStatus.HELD:
            return "still pending, cannot be approved or run here"
        case CardStatus.UNKNOWN_WAITING:
            return "outcome unknown, decision pending"
        case CardStatus.RUNNING:
            return "running"
        case CardStatus.SETTLED:
            return _result_words(card)
        case _ as never:
            assert_never(never)


def _permission(decided_by: str) -> str:
    if user := login(decided_by):
        return f"approved by {user}"
    return "allowed" if decided_by == BY_POLICY else "allowed by a rule"


def _result_words(card: ToolCardBlock) -> str:
    match card.outcome:
        case None:
            return "no result"
        case Outcome.SUCCESS:
            return duration(card.duration_ms) + _further(card, ", ")
        case Outcome.FAILED:
            return _failure(card)
        case Outcome.INVALID:
            return f"not run: {_reason(card)}" if card.reason else "not run: invalid call"
        case Outcome.DENIED:
            return _denial(card)
        case Outcome.INTERRUPTED:
            return f"not run: {one_line(card.reason)}" if card.reason else "interrupted"
        case Outcome.UNKNOWN:
            return "outcome unknown"
        case _ as never:
            assert_never(never)


def _failure(card: ToolCardBlock) -> str:
    ended = one_line(card.reason)
    if not ended:
        return f"failed after {duration(card.duration_ms)}{_further(card, ': ')}"
    # The text at the time limit already says how long it took.
    words = ended if " after " in ended else f"{ended} after {duration(card.duration_ms)}"
    return words + _further(card, ", ")


def _further(card: ToolCardBlock, joint: str) -> str:
    also = truncated(one_line(card.also), width=_LONGEST_FAILURE, ellipsis="…")
    parts = (f"{joint}{also}" if also.strip() else "", ", result shortened" if card.truncated else "")
    return "".join(parts)


def _denial(card: ToolCardBlock) -> str:
    by = _decider(card.decided_by)
    words = f"not run, denied by {by}" if by else "not run, denied"
    return f'{words}: "{_reason(card)}"' if card.reason.strip() else words


def _reason(card: ToolCardBlock) -> str:
    return truncated(one_line(card.reason), width=_LONGEST_REASON, ellipsis="…")


def _details(card: ToolCardBlock, *, width: int, theme: BlockTheme) -> list[Text]:
    facts = []
    if card.why and card.status in (CardStatus.WAITING, CardStatus.UNKNOWN_WAITING):
        facts.append(("asks because", card.why))
    if card.decided_by:
        facts.append(("decided by", card.decided_by))
    facts.append(("arguments", card.arguments))
    lines: list[Text] = []
    for name, value in facts:
        lines.extend(fold(styled((f"{name}: ", theme.muted), (value, theme.text)), width=width))
    if not card.output:
        if card.status is CardStatus.SETTLED:
            lines.append(Text("(no output)", theme.muted, end=""))
        return lines
    label = "result" if card.status is CardStatus.SETTLED else "output so far"
    label += " (shortened)" if card.truncated else ""
    lines.append(Text(f"{label}:", theme.muted, end=""))
    lines.extend(_capped(fold(styled((card.output.rstrip("\n"), theme.text)), width=width), theme=theme))
    return lines


def _capped(lines: list[Text], *, theme: BlockTheme) -> list[Text]:
    if len(lines) <= _MOST_LINES:
        return lines
    half = _MOST_LINES // 2
    left_out = Text(f"({len(lines) - 2 * half} lines omitted)", theme.muted, end="")
    return [*lines[:half], left_out, *lines[-half:]]


def argument_summary(arguments: str) -> str:
    """Return the subject of a call: its main argument bare, the others as ``name=value``.

    Arguments that are no JSON object are returned as written.
    """
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        return one_line(arguments[:_LONGEST_ARGUMENT])
    if not isinstance(parsed, Mapping):
        return one_line(arguments[:_LONGEST_ARGUMENT])
    named = dict(parsed)
    lead = next((key for key in _TELLING if isinstance(named.get(key), str)), None)
    parts = [] if lead is None else [str(named.pop(lead))]
    parts.extend(f"{key}={_short(value)}" for key, value in named.items())
    return "  ".join(one_line(part[:_LONGEST_ARGUMENT]) for part in parts)[:_LONGEST_ARGUMENT]


def _short(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)[:_LONGEST_ARGUMENT]
    except RecursionError:
        return "…"


def _decider(decided_by: str) -> str:
    """Return who decided, in short form: a user's login, else the text on one line."""
    return login(decided_by) or one_line(decided_by)


def login(decided_by: str) -> str:
    """Return the login of the user who decided; empty if it was not a user."""
    found = _PRINCIPAL.fullmatch(decided_by)
    return one_line(found["login"]) if found else ""


def duration(milliseconds: int) -> str:
    """Return a duration such as ``12 ms``, ``3.4 s`` or ``2 min 05 s``."""
    if milliseconds < 1_000:
        return f"{milliseconds} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1_000:.1f} s"
    minutes, seconds = divmod(milliseconds // 1_000, 60)
    return f"{minutes} min {seconds:02d} s"
