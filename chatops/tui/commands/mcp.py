"""The command for MCP servers: show them, connect to one again."""

from collections.abc import Sequence

from chatops.tui.commands.replies import Context, Notify, Replies, ShowText
from chatops.tui.composer.completions import Completion

_AGAIN = "reconnect"


async def mcp(context: Context, argument: str) -> Replies:
    """Show the servers with their state and tools, or connect to one again."""
    verb, _, name = argument.partition(" ")
    if verb and (verb != _AGAIN or not name.strip()):
        return (Notify(f"Usage: /mcp [{_AGAIN} NAME]"),)
    text = await context.host.text("mcp", session=context.session, argument=name.strip())
    return (ShowText("MCP servers", text),)


async def offers(context: Context, before: tuple[str, ...]) -> Sequence[Completion]:
    """Complete the verb."""
    return [Completion(insert=f"{_AGAIN} ", text=_AGAIN, note="connect again now")] if not before[1:] else []
