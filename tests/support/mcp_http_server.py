"""An MCP server of the SDK over HTTP: ``python mcp_http_server.py PORT streamable-http|sse``.

It answers 403 without the header ``x-key: canary``, and redirects ``/away`` to another port.
"""

import sys

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

server = MCPServer("test")


@server.tool()
def echo(text: str) -> str:
    """Say it again."""
    return f"echo: {text}"


@server.tool()
async def ask(ctx: Context) -> str:
    """Report progress."""
    await ctx.report_progress(1, 2, "half")
    return "done"


class Guard:
    """Lets only requests with the key pass."""

    def __init__(self, app: ASGIApp, away: str) -> None:
        self._app = app
        self._away = away

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or pass on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer: Response | None = None
        request = Request(scope)
        if request.url.path == "/away":
            answer = RedirectResponse(self._away, status_code=307)
        elif request.headers.get("x-key") != "canary" and request.url.path != "/ready":
            answer = Response("no key", status_code=403)
        elif request.url.path == "/ready":
            answer = PlainTextResponse("yes")
        await (answer or self._app)(scope, receive, send)


if __name__ == "__main__":
    port, kind = int(sys.argv[1]), sys.argv[2]
    app = server.streamable_http_app() if kind == "streamable-http" else server.sse_app()
    uvicorn.run(Guard(app, sys.argv[3] if len(sys.argv) > 3 else ""), host="127.0.0.1", port=port, log_level="error")
