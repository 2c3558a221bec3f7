"""The command /cost: tokens and prices of the session, of its turns, and of days and models in this folder."""

from collections.abc import Iterator, Sequence

from chatops.domain.events import Event, TurnFinished, TurnStatus
from chatops.domain.messages import AssistantMessage, Message, Speaker, SummaryMessage, Usage, UserMessage, total
from chatops.domain.wording import money, one_line, plural
from chatops.store.base import DailyUsage
from chatops.tui.commands.replies import Context, Replies, ShowText
from chatops.tui.dialogs.text import bar

_BAR_WIDTH = 20
"""Cells of the longest bar of a day."""
_MAX_TURNS = 50
"""Maximum number of turns listed: the last ones."""
_MAX_TITLE = 50
"""Characters of the message that is named for a turn."""
_DAYS = 14
"""Days whose usage is listed, up to today."""
_MODEL_WIDTH = 24
"""Characters of a model's name."""


async def cost(context: Context, argument: str) -> Replies:
    """Show tokens and cost of the session and of its turns, and of each day and model in this folder."""
    snapshot = context.session.snapshot()
    text = cost_text(snapshot.usage, snapshot.messages, session_id=context.session.session_id)
    if snapshot.budget:
        unfinished = snapshot.status in (None, TurnStatus.RUNNING, TurnStatus.PAUSED)
        lines = [f"Budget of {'this' if unfinished else 'the last'} turn", *(f"  {line}" for line in snapshot.budget)]
        text = "\n".join([text, "", *lines])
    days = await context.workspace.sessions.daily_usage(days=_DAYS)
    return (ShowText("Cost", "\n".join([text, *_lines_by_day(days)])),)


def _lines_by_day(days: Sequence[DailyUsage]) -> list[str]:
    """Return a line for each day and model, with bars of tokens; nothing if no server reported any.

    A reply without a known price is never counted as free: the line says so.
    """
    if not days:
        return []
    most = max(day.tokens for day in days)
    width = min(_MODEL_WIDTH, max(len(day.model) for day in days))
    lines = ["", f"By day and model, all sessions of this folder, the last {_DAYS} days"]
    date_before = ""
    for day in days:
        price = "price unknown" if day.cost is None else money(day.cost, cents_from=1)
        price += ", not all priced" if day.cost is not None and day.unpriced else ""
        name, date = one_line(day.model, most=_MODEL_WIDTH - 1) or "?", day.day if day.day != date_before else ""
        length = bar(day.tokens, most=most, width=_BAR_WIDTH)
        lines.append(f"  {date:<10}  {name:<{width}}  {length:<{_BAR_WIDTH}}{day.tokens:>11,}  {price}")
        date_before = day.day
    return lines


def cost_text(usage: Usage | None, messages: Sequence[Message], *, session_id: str = "") -> str:
    """Return the usage as text, also if the server does not report any.

    In a copy, `usage` is what the session with this id has used itself. Its first turns were counted in the session
    that it was made from. They stand below in one line.
    """
    earlier = [message for message in messages if session_id and not message.id.startswith(f"{session_id}.")]
    own = messages[len(earlier) :]
    turns = [(title, spent) for title, spent in _usage_by_turn(own) if spent is not None]
    lines = _total_lines(usage, own, all_priced=all(spent.cost is not None for _, spent in turns))
    if turns:
        lines += ["", f"{'By turn':<8}{'input':>10}{'output':>10}{'cost':>12}"]
    for number, (title, spent) in list(enumerate(turns, start=1))[-_MAX_TURNS:]:
        price = "" if spent.cost is None else money(spent.cost, cents_from=1)
        lines.append(f"{number:>6}  {spent.input_tokens:>10,}{spent.output_tokens:>10,}{price:>12}  {title}".rstrip())
    if (not_listed := len(turns) - _MAX_TURNS) > 0:
        lines.append(f"{plural(not_listed, 'earlier turn')} not listed")
    if (before := total(*(spent for _, spent in _usage_by_turn(earlier)))) is not None:
        lines += ["", f"Before this copy, not counted above: {_tokens_and_price(before)}"]
        lines.append("They count in the session they were used in, as do those of turns that were taken back.")
    return "\n".join(lines)


def _total_lines(usage: Usage | None, messages: Sequence[Message], *, all_priced: bool) -> list[str]:
    """Return the usage of the session's own messages, or why there is none."""
    asked = any(isinstance(sent, UserMessage) and sent.by is Speaker.USER for sent in messages)
    if usage is None and not asked:
        return ["Nothing was sent to a model in this session yet."]
    if usage is None:
        return ["The server has not reported token usage."]
    unknown = "unknown: chatops models prices lists the known prices"
    price = unknown if usage.cost is None else money(usage.cost, cents_from=1)
    price += "" if all_priced or usage.cost is None else ", not all priced"
    return [
        "In this session",
        f"  input      {usage.input_tokens:>10,} tokens",
        *([f"  cached     {usage.cached_tokens:>10,} tokens of the input"] if usage.cached_tokens else []),
        f"  output     {usage.output_tokens:>10,} tokens",
        f"  reasoning  {usage.reasoning_tokens:>10,} tokens",
        f"  cost       {price}",
    ]


def finished_costs(events: Sequence[Event]) -> Iterator[str]:
    """Yield a line with tokens and cost of each turn that has ended."""
    for event in events:
        if isinstance(event, TurnFinished) and event.usage is not None:
            yield f"This turn: {_tokens_and_price(event.usage)}"


def _tokens_and_price(usage: Usage) -> str:
    price = "" if usage.cost is None else f", cost {money(usage.cost, cents_from=1)}"
    return f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out{price}"


def _usage_by_turn(messages: Sequence[Message]) -> list[tuple[str, Usage | None]]:
    """Return the beginning of each message of the user with the usage until the next one; None if it is unknown."""
    turns: list[tuple[str, Usage | None]] = []
    for message in messages:
        match message:
            case UserMessage():
                turns.append((one_line(message.text, most=_MAX_TITLE), None))
            case SummaryMessage() if message.usage is not None:
                turns.append(("/compact", message.usage))
            case AssistantMessage() if turns:
                title, spent = turns[-1]
                turns[-1] = (title, total(spent, message.usage))
            case _:
                pass
    return turns
