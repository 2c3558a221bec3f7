"""The list of completions: how it fits notes beside long texts, and counts what does not fit."""

import pytest
from textual.app import App, ComposeResult

from chatops.tui.composer import Completion, Completions

pytestmark = pytest.mark.more


class Host(App[None]):
    def compose(self) -> ComposeResult:
        yield Completions()


async def shown(count: int, moved: int = 0) -> str:
    items = [
        Completion(insert=f"c{n}", text=f"/c{n} {'[long] ' * 9 if n == 1 else ''}", note="note") for n in range(count)
    ]
    app = Host()
    async with app.run_test(size=(80, 10)) as pilot:
        app.query_one(Completions).offer(items)
        app.query_one(Completions).move(moved)
        await pilot.pause()
        strips = app.screen._compositor.render_strips()
        return "\n".join(strip.text for strip in strips)


async def test_a_long_syntax_leaves_room_for_the_notes() -> None:
    text = await shown(3)
    assert text.count("note") == 3 and "[long]" in text


async def test_the_last_line_counts_where_not_all_fit() -> None:
    assert "of" not in await shown(6)
    assert "1 of 9, Down for more" in await shown(9)
    last = await shown(9, moved=-1)
    assert "> /c8" in last and "9 of 9" in last
