"""Dispatches slash commands. Text that starts with a slash never reaches a model."""

from chatops.domain.errors import ChatopsError
from chatops.tui.commands.replies import Context, Notify, Replies, ScreenAction


def is_command(text: str) -> bool:
    """Return True if a text is for the app and not for the model. A leading space makes it a message."""
    return text.startswith("/")


def is_known(text: str) -> bool:
    """Return True if a typed command starts with the name of one."""
    from chatops.tui.commands.table import find_command

    return find_command(text[1:].partition(" ")[0].strip()) is not None


async def run_command(context: Context, text: str) -> Replies:
    """Run a typed command. The replies end with `ScreenAction.GIVE_BACK` if nothing was done."""
    # The table imports every handler, which is not needed before the first command.
    from chatops.tui.commands.table import find_command, unknown_command

    name, _, argument = text[1:].partition(" ")
    command = find_command(name.strip())
    if command is None:
        return _refused(unknown_command(name.strip()))
    try:
        return await command.run(context, argument.strip())
    except ChatopsError as error:
        return _refused(error.full)


def _refused(text: str) -> Replies:
    return (Notify(text), ScreenAction.GIVE_BACK)
