"""The text of a block, for copying and for searching."""

import json
from typing import assert_never

from chatops.domain.messages import RoleSwitchMessage
from chatops.domain.tools import tool_name
from chatops.tui.transcript.blocks import (
    AnswerBlock,
    Block,
    NoticeBlock,
    ReasoningBlock,
    StepBlock,
    ToolCardBlock,
    UserBlock,
)


def copied_text(block: Block) -> str:
    """Return what is copied of a block: a message as written; of a tool call its command and output, or its change."""
    match block:
        case UserBlock() | AnswerBlock() | ReasoningBlock():
            return block.text
        case ToolCardBlock():
            return _call_text(block)
        case RoleSwitchMessage():
            tools = {"+": block.added, "-": block.removed}
            named = [f"{sign} {', '.join(names)}" for sign, names in tools.items() if names]
            return "\n".join([f"{block.before} -> {block.after}", *named])
        case NoticeBlock():
            return "\n".join(part for part in (block.text, block.advice) if part)
        case StepBlock():
            return block.text or block.title
        case _ as never:
            assert_never(never)


def noun_of(block: Block) -> str:
    """Return what a block is, as the word that names it: "the answer"."""
    match block:
        case UserBlock():
            return "the message"
        case AnswerBlock():
            return "the answer"
        case ReasoningBlock():
            return "the model's reasoning"
        case ToolCardBlock():
            return "the call with its result"
        case RoleSwitchMessage():
            return "the change of role"
        case NoticeBlock():
            return "the notice"
        case StepBlock():
            return "the step"
        case _ as never:
            assert_never(never)


def searched_text(block: Block) -> str:
    """Return everything of a block that can be read on the screen once it is open."""
    if isinstance(block, RoleSwitchMessage):
        return " ".join([block.before, block.after, block.model, *block.added, *block.removed])
    if not isinstance(block, ToolCardBlock):
        return copied_text(block)
    values, end = _strings(block.arguments) or [block.arguments], block.end
    return "\n".join(
        [block.tool, *values, end.ended_because, end.error_line, end.likely_cause, block.diff, block.output]
    )


def _call_text(card: ToolCardBlock) -> str:
    if card.diff:
        return card.diff
    values = _strings(card.arguments)
    about = "\n".join(values) if values else card.arguments
    if tool_name(card.tool) == "shell_exec" or not card.output:
        return f"{about}\n{card.output}".rstrip("\n")
    return card.output.rstrip("\n")


def _strings(arguments: str) -> list[str]:
    """Return the texts among the arguments of a call; none if they cannot be read."""
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        return []
    return [value for value in given.values() if isinstance(value, str)] if isinstance(given, dict) else []
