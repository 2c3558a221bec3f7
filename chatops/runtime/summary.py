"""A summary of the session for the model: asked for, shown to the user, and stored only if the user takes it.

It is not a turn. Nothing is stored until the user has seen the text, so a crash loses a summary and nothing else. Once
stored, it is a message like any other, and the model gets it instead of what was said before; see `engine.transcript`.
"""

from chatops.domain.errors import ChatopsError
from chatops.domain.ids import MessageId
from chatops.domain.messages import Message, SummaryMessage, UserMessage, countable
from chatops.domain.model import ModelRequest, ToolChoice
from chatops.engine.transcript import fit
from chatops.models.base import Failed, ModelClient, Replied
from chatops.policy.grant import Grant

INSTRUCTION = (
    "Summarise our session so far for yourself: from now on you will get this summary instead of the messages above."
    " Keep what the work needs: what I want, decisions and their reasons, files and commands that matter with their"
    " exact names, results that were found, errors and how they were solved, and what is left to do. Leave out"
    " pleasantries and everything that was overtaken. Write at most 600 words, as plain text or a list. Call no tools."
)


async def ask_for_summary(
    models: ModelClient, *, grant: Grant, messages: tuple[Message, ...], focus: str
) -> SummaryMessage:
    """Return a summary of `messages`, not stored and without an id.

    `focus` is what the user asks to keep in particular. Raises ChatopsError if there is none.
    """
    target = grant.models[0]
    text = f"{INSTRUCTION}\n\nKeep in particular: {focus}" if focus else INSTRUCTION
    asked = (*messages, UserMessage(id=MessageId("summary"), text=text))
    request = ModelRequest(
        model=target.name,
        system=grant.prompt,
        messages=fit(asked, system=grant.prompt, tools=grant.tools, model=target).messages,
        tools=grant.tools,
        tool_choice=ToolChoice.NONE,
    )
    async for event in models.stream(request):
        match event:
            case Replied(reply=reply) if reply.text.strip():
                return SummaryMessage(
                    id=MessageId(""),
                    text=reply.text.strip(),
                    replaces=countable(messages),
                    model=target.name,
                    usage=reply.usage,
                )
            case Replied():
                raise ChatopsError(f"{target.label or target.name} sent an empty summary.", advice="Try again.")
            case Failed(failure=failure):
                raise ChatopsError(f"There is no summary: {failure.message}", advice=failure.advice)
            case _:
                pass
    raise ChatopsError("There is no summary: the reply did not end.", advice="Try again.")
