"""The command that replaces what was said by a summary, shown and edited before it counts."""

from dataclasses import replace

from chatops.domain.ids import MessageId
from chatops.domain.messages import SummaryMessage
from chatops.runtime.session import owned
from chatops.tui.commands.replies import Choose, Context, Notify, Replies
from chatops.tui.dialogs.question import Question

_EXPLAIN = (
    "From the next message on, the model gets this text instead of what was said before. Edit it as you like. The"
    " transcript stays as it is, and /compact undo takes it back."
)
_REFUSED = "Nothing was compacted"


async def compact(context: Context, argument: str) -> Replies:
    """Ask the model for a summary, which the user may edit. ``undo`` sends all messages again.

    Any other argument says what to keep in particular.
    """
    session = owned(context.session, _REFUSED)
    if argument == "undo":
        messages = context.session.snapshot().messages
        last = next((one for one in reversed(messages) if isinstance(one, SummaryMessage)), None)
        if last is None or not last.text:
            return (Notify("The session is not compacted."),)
        await session.actions.compact(SummaryMessage(id=MessageId(""), text="", replaces=0))
        return ()
    asked = session.actions.summary_request(argument)
    summaries: list[SummaryMessage] = []

    async def load() -> str:
        summaries.append(await asked())
        return summaries[-1].text

    async def taken(then: Context, text: str) -> Replies:
        await owned(then.session, _REFUSED).actions.compact(replace(summaries[-1], text=text))
        return ()

    question = Question(
        "Compact the session",
        explain=_EXPLAIN,
        text="",
        check=_not_empty,
        done="compacts",
        lines=True,
        load=load,
        waiting="The model writes a summary. You see it before it counts.",
    )
    return (Choose(question, taken),)


def _not_empty(text: str) -> str:
    if not text.strip():
        raise ValueError("An empty summary would leave the model without anything. Esc goes back.")
    return text.strip()
