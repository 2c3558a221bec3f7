"""The command that copies an answer or one of its code blocks."""

import re
from collections.abc import Sequence

from chatops.domain.messages import AssistantMessage
from chatops.domain.wording import plural
from chatops.tui.commands.replies import Choose, Context, Copy, Notify, Replies
from chatops.tui.composer.completions import Completion
from chatops.tui.dialogs.picker import Choice, Picker, columns

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^`]*)")
_WIDTH = 70


async def copy(context: Context, argument: str) -> Replies:
    """Copy the last answer, the Nth from the end, or with ``code`` a code block of the newest answer that has one."""
    answers = [
        one.text
        for one in reversed(context.session.snapshot().messages)
        if isinstance(one, AssistantMessage) and one.text.strip()
    ]
    if not answers:
        return (Notify("There is no answer to copy yet."),)
    if argument == "code":
        return _code(answers)
    if argument and not (argument.isdecimal() and int(argument) > 0):
        return (Notify("Usage: /copy, /copy 2 for the answer before the last one, /copy code"),)
    number = int(argument or 1)
    if number > len(answers):
        return (Notify(f"There is no answer {number}: the session has {plural(len(answers), 'answer')}."),)
    return (Copy(answers[number - 1]),)


async def offers(context: Context, before: tuple[str, ...]) -> Sequence[Completion]:
    """Complete the argument."""
    return [] if before[1:] else [Completion(insert="code", text="code", note="a code block of the last answer")]


def _code(answers: Sequence[str]) -> Replies:
    blocks = next((found for found in map(code_blocks, answers) if found), [])
    if not blocks:
        return (Notify("No answer has a code block."),)
    if len(blocks) == 1:
        return (Copy(blocks[0][1]),)
    choices = [
        Choice(
            key=str(index),
            text=columns((language or "text", 12), (code.strip().split("\n")[0], _WIDTH)),
            find=f"{language} {code}",
            preview=code,
        )
        for index, (language, code) in enumerate(blocks)
    ]

    async def chosen(_: Context, key: str) -> Replies:
        return (Copy(blocks[int(key)][1]),)

    return (Choose(Picker("Copy a code block", choices=choices, empty="No code block matches."), chosen),)


def code_blocks(text: str) -> list[tuple[str, str]]:
    """Return language and content of each fenced code block of a Markdown text."""
    blocks: list[tuple[str, str]] = []
    fence, language, lines = "", "", list[str]()
    for line in text.split("\n"):
        found = _FENCE.fullmatch(line)
        if not fence and found is not None:
            fence, language, lines = found[1], found[2].strip(), []
        elif fence and found is not None and found[1].startswith(fence) and not found[2].strip():
            blocks.append((language, "\n".join(lines)))
            fence = ""
        elif fence:
            lines.append(line)
    # A fence that is not closed ends with the text.
    return [*blocks, (language, "\n".join(lines))] if fence else blocks
