"""The command for MCP servers: show them, connect to one again, log in at one."""

from collections.abc import Sequence

from chatops.tui.commands.replies import Context, Notify, Replies, ShowText
from chatops.tui.composer.completions import Completion

_VERBS = {"reconnect": "connect again now", "login": "log in, in the browser"}


async def mcp(context: Context, argument: str) -> Replies:
    """Show the servers with their state and tools, connect to one again, or log in at one."""
    verb, _, name = argument.partition(" ")
    name = name.strip()
    if verb and (verb not in _VERBS or not name):
        return (Notify("Usage: /mcp [reconnect NAME|login NAME]"),)
    if verb == "login":
        return (ShowText(f"Log in at {name}", await context.workspace.log_in(name)),)
    return (ShowText("MCP servers", context.workspace.servers(reconnect=name)),)


async def offers(context: Context, before: tuple[str, ...]) -> Sequence[Completion]:
    """Complete the verb."""
    if before[1:]:
        return []
    return [Completion(insert=f"{verb} ", text=verb, note=note) for verb, note in _VERBS.items()]
