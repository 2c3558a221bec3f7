"""Dispatches typed commands. Text that starts with a slash or an exclamation mark never reaches a model."""

from chatops.domain.errors import ChatopsError
from chatops.tui.commands.face import AlreadyShownError, Face


def is_command(text: str) -> bool:
    """Return True if a text is for the app and not for the model. A leading space makes it a message."""
    return text.startswith(("/", "!"))


async def run_command(face: Face, text: str) -> bool:
    """Run a typed command. Return False if nothing was done and the user should get the text back."""
    # The table imports every handler, which is not needed before the first command.
    from chatops.tui.commands.table import find_command, unknown_command

    if text.startswith("!"):
        face.say("Running a command yourself comes in a later version. Ask for it: the model's calls are asked about.")
        return False
    name, _, argument = text[1:].partition(" ")
    command = find_command(name.strip())
    if command is None:
        face.say(unknown_command(name.strip()))
        return False
    if command.run is None:
        face.say(f"/{command.name} ({command.help}) is not in this version.")
        return False
    try:
        await command.run(face, argument.strip())
    except AlreadyShownError:
        return False
    except ChatopsError as error:
        face.say(f"{error} {error.advice}".strip())
        return False
    return True
