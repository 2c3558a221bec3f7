"""The least that a chat in Textual has to do, as a measure for ours: no tools, no store, no rights.

One view draws lines, finished blocks are kept as strips, the open one is drawn 20 times a second, and the SDK is
imported in a thread after the first paint: ``python -m tests.benchmarks.floor.chat URL``.
"""

import asyncio
import gc
import json
import os
import sys
import termios
from threading import Lock
from typing import Any

from textual import work
from textual.app import App, ComposeResult
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Input

FRAME_S = 0.05


class Lines(ScrollView, can_focus=False):
    """The transcript."""

    DEFAULT_CSS = "Lines { height: 1fr; overflow-x: hidden; overflow-y: scroll; scrollbar-size-vertical: 1; }"

    def __init__(self) -> None:
        super().__init__()
        self.closed: list[Strip] = []
        self.open: list[Strip] = []

    def drawn(self, text: str, *, by_user: bool = False) -> list[Strip]:
        from rich.markdown import Markdown
        from rich.text import Text

        console = self.app.console
        options = console.options.update(width=max(20, self.size.width - 2))
        block = Text(f"> {text}", style="bold cyan") if by_user else Markdown(text)
        return [*(Strip(line) for line in console.render_lines(block, options, pad=False)), Strip([])]

    def show(self) -> None:
        self.virtual_size = Size(self.size.width, len(self.closed) + len(self.open))
        self.scroll_to(y=self.max_scroll_y, animate=False, immediate=True, force=True)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        at, width = self.scroll_offset.y + y, self.size.width
        lines = self.closed if at < len(self.closed) else self.open
        at -= 0 if at < len(self.closed) else len(self.closed)
        return (lines[at] if at < len(lines) else Strip([])).extend_cell_length(width).crop(0, width)


class Floor(App[None]):
    """Sends what is typed and draws the reply."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS = [("ctrl+q", "leave", "quit")]  # noqa: RUF012

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._messages: list[dict[str, str]] = []
        self._client: Any = None
        self._connecting = Lock()

    def compose(self) -> ComposeResult:
        yield Lines()
        yield Input(placeholder="Message")

    def on_mount(self) -> None:
        field = self.query_one(Input)
        field.cursor_blink = False
        field.focus()
        self.call_after_refresh(self._painted)

    def _painted(self) -> None:
        gc.freeze()
        gc.set_threshold(20_000, 50, 1_000)
        gc.enable()
        self.set_timer(0.15, self._warm_up)

    def _warm_up(self) -> None:
        self.run_worker(self._connect, thread=True, group="sdk", exclusive=True)

    def _connect(self) -> None:
        # A second client would replace the first during its request, and collecting that one ends its connections.
        with self._connecting:
            if self._client is None:
                import openai

                self._client = openai.AsyncOpenAI(base_url=self._url, api_key="none", max_retries=0)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.input.value = ""
        lines = self.query_one(Lines)
        lines.closed += lines.drawn(event.value, by_user=True)
        lines.show()
        self._messages.append({"role": "user", "content": event.value})
        self._ask()

    @work
    async def _ask(self) -> None:
        if self._client is None:
            await asyncio.to_thread(self._connect)
        import httpx2

        body = json.dumps({"model": "bench", "stream": True, "messages": self._messages}).encode()
        response = await self._client.post(
            "/chat/completions",
            cast_to=httpx2.Response,
            content=body,
            options={"headers": {"Content-Type": "application/json"}},
            stream=True,
        )
        lines, clock = self.query_one(Lines), asyncio.get_running_loop().time
        text, done, shown, rest = "", 0, 0.0, b""
        async for part in response.aiter_bytes():
            *events, rest = (rest + part).split(b"\n\n")
            for event in events:
                if event.startswith(b"data: {"):
                    text += json.loads(event[6:])["choices"][0]["delta"].get("content") or ""
            if clock() - shown >= FRAME_S:
                cut = text.rfind("\n\n", done) + 2 if text[done:].count("```") % 2 == 0 else done
                if cut > done + 1:
                    lines.closed += lines.drawn(text[done:cut])
                    done = cut
                lines.open = lines.drawn(text[done:]) if text[done:].strip() else []
                lines.show()
                shown = clock()
                await asyncio.sleep(0)
        lines.closed += lines.drawn(text[done:]) if text[done:].strip() else []
        lines.open = []
        lines.show()
        self._messages.append({"role": "assistant", "content": text})

    def action_leave(self) -> None:
        driver = self._driver
        assert driver is not None
        driver.write("\x1b[?1049l\x1b[?25h\x1b[?1000l\x1b[?1003l\x1b[?1006l\x1b[?2004l")
        driver.flush()
        termios.tcflush(0, termios.TCIFLUSH)
        os._exit(0)


if __name__ == "__main__":
    Floor(sys.argv[1]).run()
