"""The command that copies an answer or one of its code blocks."""

from collections.abc import Sequence

from chatops.domain.messages import AssistantMessage
from chatops.domain.wording import plural
from chatops.tui.commands.replies import Choose, Context, Copy, Notify, Replies
from chatops.tui.composer.completions import Completion
from chatops.tui.dialogs.picker import Choice, Picker, columns

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
    what = "the last answer" if number == 1 else f"answer {number} from the end"
    return (Copy(answers[number - 1], what),)


async def offers(context: Context, before: tuple[str, ...]) -> Sequence[Completion]:
    """Complete the argument."""
    return [] if before[1:] else [Completion(insert="code", text="code", note="a code block of the last answer")]


def _code(answers: Sequence[str]) -> Replies:
    # Not before the first prompt.
    from chatops.tui.transcript.markdown import code_blocks

    blocks = next((found for found in map(code_blocks, answers) if found), [])
    if not blocks:
        return (Notify("No answer has a code block."),)
    if len(blocks) == 1:
        return (Copy(blocks[0][1], "the code block"),)
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
        return (Copy(blocks[int(key)][1], "the code block"),)

    return (Choose(Picker("Copy a code block", choices=choices, empty="No code block matches."), chosen),)
