"""The command that finds a text in all sessions of the workspace and opens the session."""

from chatops.domain.wording import excerpt
from chatops.tui.commands.handlers import resume
from chatops.tui.commands.replies import Choose, Context, Notify, Replies
from chatops.tui.dialogs.picker import Choice, Picker, columns

_AROUND = 24
_TITLE = 24
_TEXT = 50


async def search(context: Context, argument: str) -> Replies:
    """Let the user choose among the places that contain a text, and open the session."""
    if not argument:
        return (Notify("Write what to search for after the command: /search invoice"),)
    hits = await context.host.search(argument)
    if not hits:
        return (Notify(f"No session of this workspace contains {argument!r}."),)
    choices = [
        Choice(
            key=str(index),
            text=columns((hit.title, _TITLE), (hit.when, 15), (excerpt(hit.text, argument, around=_AROUND), _TEXT)),
            find=f"{hit.title} {hit.text}",
            preview=hit.text,
        )
        for index, hit in enumerate(hits)
    ]

    async def chosen(then: Context, key: str) -> Replies:
        return await resume(then, hits[int(key)].session_id)

    return (Choose(Picker(f"Sessions with {argument!r}", choices=choices), chosen),)
