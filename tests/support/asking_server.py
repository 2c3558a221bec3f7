"""An MCP server of the official SDK whose tool asks the user twice: in one way in each generation of the protocol."""

from typing import Annotated, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver import Elicit, Resolve
from pydantic import BaseModel, Field

server = MCPServer("harbour")


class Who(BaseModel):
    """The first question."""

    name: str = Field(description="As in the register", min_length=2)
    boats: int = Field(default=1, ge=1, le=9)
    size: Literal["small", "large"] = "small"


class Sure(BaseModel):
    """The second question."""

    sure: bool


async def who() -> Elicit[Who]:
    """Ask who books."""
    return Elicit("Who are you?", Who)


async def sure(who: Annotated[Who, Resolve(who)]) -> Elicit[Sure]:
    """Ask again, now that the answer is known."""
    return Elicit(f"Are you sure, {who.name}?", Sure)


@server.tool()
def book(who: Annotated[Who, Resolve(who)], sure: Annotated[Sure, Resolve(sure)]) -> str:
    """Book a berth."""
    return f"{who.name}: {who.boats} {who.size}, {sure.sure}"


if __name__ == "__main__":
    server.run()
