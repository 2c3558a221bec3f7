"""The transcript in a running app: following the end, scrolling, selecting, opening cards, resizing."""

from collections.abc import Iterator
from unittest import mock

import pytest
from textual.app import App, ComposeResult
from textual.color import Color
from textual.events import MouseScrollUp
from textual.geometry import Offset
from textual.pilot import Pilot
from textual.selection import Selection
from textual.theme import BUILTIN_THEMES

from chatops.domain.tools import Outcome
from chatops.tui.theme import PLAIN
from chatops.tui.transcript import answer
from chatops.tui.transcript.answer import AnswerDrawing, warm_up
from chatops.tui.transcript.blocks import (
    AnswerBlock,
    Block,
    CardStatus,
    Extend,
    NoticeBlock,
    Put,
    Remove,
    ToolCardBlock,
    UserBlock,
)
from chatops.tui.transcript.transcript import Transcript
from tests.support.transcript_blocks import MARKDOWN, samples


class Host(App[None]):
    """An app with a transcript only."""

    ENABLE_COMMAND_PALETTE = False

    def __init__(self) -> None:
        super().__init__()
        self.bells = 0

    def compose(self) -> ComposeResult:
        yield Transcript()

    def on_mount(self) -> None:
        self.transcript.focus()

    @property
    def transcript(self) -> Transcript:
        return self.query_one(Transcript)

    async def action_bell(self) -> None:
        self.bells += 1


@pytest.fixture(autouse=True)
def _markdown() -> Iterator[None]:
    warm_up()
    yield


def screen(app: Host) -> list[str]:
    transcript = app.transcript
    return [transcript.render_line(y).text.rstrip() for y in range(transcript.size.height)]


def users(count: int, *, words: int = 1) -> list[Block]:
    return [UserBlock(id=f"u{number}", text=f"message {number} " + "word " * words) for number in range(count)]


def long_answers(count: int) -> list[Block]:
    return [AnswerBlock(id=f"a{number}", text=f"# Part {number}\n\n{MARKDOWN}") for number in range(count)]


def contrast(one: Color, other: Color) -> float:
    """The contrast ratio of WCAG 2.1, 1 to 21."""

    def luminance(colour: Color) -> float:
        red, green, blue = (
            part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in colour.normalized
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


CARD = ToolCardBlock(
    id="card",
    tool="file_read",
    arguments='{"path":"README.md"}',
    status=CardStatus.SETTLED,
    outcome=Outcome.SUCCESS,
    output="first line\nsecond line",
    duration_ms=12,
)


async def test_a_long_session_opens_at_its_end() -> None:
    app = Host()
    async with app.run_test(size=(80, 20)) as pilot:
        app.transcript.set_blocks(users(300))
        await pilot.pause()
        assert "message 299" in screen(app)[-1]
        assert app.transcript.following


async def test_new_text_scrolls_into_view_until_the_user_scrolls_away() -> None:
    app = Host()
    async with app.run_test(size=(80, 20)) as pilot:
        transcript = app.transcript
        transcript.set_blocks(users(50))
        transcript.apply([Put(block=AnswerBlock(id="a", text="start\n\n", open=True))])
        transcript.apply([Extend(id="a", text="word\n\n" * 30 + "the newest")])
        await pilot.pause()
        assert "the newest" in screen(app)[-1]
        await pilot.press("pageup")
        before = screen(app)
        assert not transcript.following
        transcript.apply([Extend(id="a", text="\n\nmore" * 30)])
        await pilot.pause()
        assert screen(app) == before
        await pilot.press("end")
        assert transcript.following
        transcript.apply([Extend(id="a", text="\n\nlast of all")])
        await pilot.pause()
        assert "last of all" in screen(app)[-1]


async def test_paging_back_to_the_end_follows_again() -> None:
    app = Host()
    async with app.run_test(size=(80, 20)) as pilot:
        app.transcript.set_blocks(users(60))
        await pilot.pause()
        await pilot.press("pageup", "pageup")
        assert not app.transcript.following
        await pilot.press("pagedown", "pagedown")
        assert app.transcript.following
        await pilot.press("home")
        assert "message 0" in screen(app)[0]
        assert not app.transcript.following


async def test_the_wheel_scrolls_and_releases_the_end() -> None:
    app = Host()
    async with app.run_test(size=(80, 20)) as pilot:
        app.transcript.set_blocks(users(60))
        await pilot.pause()
        await pilot._post_mouse_events([MouseScrollUp], app.transcript, button=0)
        await pilot.pause()
        assert not app.transcript.following


@pytest.mark.more
async def test_scrolling_up_a_page_shows_the_lines_before_with_one_kept() -> None:
    app = Host()
    async with app.run_test(size=(80, 20)) as pilot:
        app.transcript.set_blocks(long_answers(40))
        await pilot.pause()
        first = screen(app)[0]
        await pilot.press("pageup")
        await pilot.pause()
        assert screen(app)[-1] == first


async def test_enter_and_click_open_and_fold_a_card() -> None:
    app = Host()
    async with app.run_test(size=(80, 20)) as pilot:
        app.transcript.set_blocks([UserBlock(id="u", text="hi"), CARD, NoticeBlock(id="n", text="below")])
        await pilot.pause()
        assert not any("second line" in line for line in screen(app))
        await pilot.press("ctrl+up", "ctrl+up", "enter")
        assert app.transcript.selected_block == "card"
        assert any("second line" in line for line in screen(app))
        await pilot.click(Transcript, offset=(10, 2))
        await pilot.pause()
        assert not any("second line" in line for line in screen(app))
        await pilot.click(Transcript, offset=(10, 2))
        await pilot.pause()
        assert any("second line" in line for line in screen(app))
        await pilot.click(Transcript, offset=(10, 5))
        await pilot.pause()
        assert any("second line" in line for line in screen(app)), "a click into the details must not fold them"
        before = screen(app)
        await pilot.click(Transcript, offset=(10, 0))
        await pilot.pause()
        assert screen(app) == before, "a click on a message opens and folds nothing"


async def test_the_keyboard_goes_from_block_to_block_and_shows_each_without_colour() -> None:
    app = Host()
    async with app.run_test(size=(80, 10)) as pilot:
        blocks: list[Block] = [ToolCardBlock(id="card", tool="one", arguments="{}"), *users(30)]
        app.transcript.set_blocks([*blocks, AnswerBlock(id="answer", text="one\n\ntwo")])
        await pilot.pause()
        await pilot.press("ctrl+up")
        assert app.transcript.selected_block == "answer"
        assert [line[0] for line in screen(app)[-3:]] == ["❯", "┃", "┃"]
        await pilot.press("ctrl+up")
        assert app.transcript.selected_block == "u29"
        assert any(line.startswith("❯") for line in screen(app))
        for _ in range(40):
            await pilot.press("ctrl+up")
        assert app.transcript.selected_block == "card"
        assert screen(app)[0].startswith("❯")
        await pilot.press("escape")
        assert not app.transcript.selected_block
        assert not any("❯" in line for line in screen(app))


async def test_a_card_stays_open_when_its_state_changes() -> None:
    app = Host()
    async with app.run_test(size=(80, 20)) as pilot:
        running = ToolCardBlock(id="card", tool="file_read", arguments="{}", status=CardStatus.RUNNING)
        app.transcript.set_blocks([running])
        app.transcript.toggle("card")
        app.transcript.apply([Put(block=CARD)])
        await pilot.pause()
        assert any("second line" in line for line in screen(app))


async def test_blocks_can_be_inserted_before_others_and_removed() -> None:
    app = Host()
    async with app.run_test(size=(80, 20)) as pilot:
        transcript = app.transcript
        transcript.set_blocks([UserBlock(id="u", text="one"), CARD])
        transcript.apply([Put(block=AnswerBlock(id="a", text="two"), before="card")])
        await pilot.pause()
        assert [block.id for block in transcript.blocks] == ["u", "a", "card"]
        assert [line.strip() for line in screen(app)[:4]] == ["▌ one", "", "two", ""]
        transcript.apply([Remove(id="a"), Remove(id="never there"), Extend(id="never there", text="x")])
        await pilot.pause()
        assert "✓ Read" in screen(app)[2]
        transcript.set_blocks([])
        await pilot.pause()
        assert not any(screen(app))


async def test_a_selection_is_copied_as_the_text_without_gutter_and_fill() -> None:
    app = Host()
    async with app.run_test(size=(80, 20)) as pilot:
        app.transcript.set_blocks([UserBlock(id="u", text="hello\nworld"), AnswerBlock(id="a", text="漢字 and more")])
        await pilot.pause()
        await pilot.mouse_down(Transcript, offset=(2, 0))
        await pilot.hover(Transcript, offset=(4, 1))
        await pilot.mouse_up(Transcript, offset=(4, 1))
        assert app.screen.get_selected_text() == "hello\nwor"
        whole = app.transcript.get_selection(Selection(Offset(0, 0), None))
        assert whole is not None
        assert whole[0] == "hello\nworld\n\n漢字 and more"
        wide = app.transcript.get_selection(Selection(Offset(2, 3), Offset(4, 3)))
        assert wide is not None
        assert wide[0] == "漢字"


async def test_a_selection_is_drawn_and_does_not_change_the_text() -> None:
    app = Host()
    async with app.run_test(size=(80, 20)) as pilot:
        app.transcript.set_blocks([AnswerBlock(id="a", text="漢字 and more")])
        await pilot.pause()
        plain = app.transcript.render_line(0)
        app.screen.selections = {app.transcript: Selection(Offset(3, 0), Offset(6, 0))}
        marked = app.transcript.render_line(0)
        assert marked.text == plain.text
        assert marked.cell_length == plain.cell_length
        assert marked != plain


@pytest.mark.some(1)
@pytest.mark.parametrize("theme", sorted(name for name in BUILTIN_THEMES if not name.startswith("ansi-")))
async def test_selected_text_can_be_read_in_every_theme(theme: str) -> None:
    app = Host()
    async with app.run_test(size=(40, 12)) as pilot:
        app.theme = theme
        app.transcript.set_blocks([AnswerBlock(id="a", text="words and `code`\n\n```python\nx = 1  # why\n```"), CARD])
        await pilot.pause()
        app.screen.selections = {app.transcript: Selection(Offset(2, 0), None)}
        for y in range(5):
            for text, style, _ in app.transcript.render_line(y):
                if text.strip():
                    assert style is not None and style.color is not None and style.bgcolor is not None
                    front, behind = (Color.from_rich_color(colour) for colour in (style.color, style.bgcolor))
                    assert contrast(front, behind) >= 4.5 and not style.dim, (text, front, behind)


async def test_a_new_width_redraws_everything_and_keeps_the_position() -> None:
    app = Host()
    async with app.run_test(size=(100, 20)) as pilot:
        transcript = app.transcript
        transcript.set_blocks([*users(40, words=30), NoticeBlock(id="n", text="the end")])
        await pilot.pause()
        await pilot.resize_terminal(50, 20)
        await pilot.pause()
        assert "the end" in screen(app)[-1]
        assert all(len(line) <= 50 for line in screen(app))
        await pilot.press("home", "pagedown")
        await pilot.pause()
        top = next(line for line in screen(app) if "message" in line).split("word")[0]
        await pilot.resize_terminal(90, 20)
        await pilot.pause()
        assert any(top in line for line in screen(app))


async def drawn_ahead(pilot: Pilot[None], transcript: Transcript) -> int:
    """Wait until nothing is drawn in the background, and return the number of drawn blocks."""
    while transcript._slicing:
        await pilot.pause(0.01)
    return sum(1 for entry in transcript._blocks_layout.entries if entry.drawn_width)


async def test_a_long_session_draws_no_more_blocks_than_a_short_one() -> None:
    drawn = {}
    for count in (60, 3_000):
        app = Host()
        async with app.run_test(size=(80, 20)) as pilot:
            app.transcript.set_blocks(long_answers(count))
            await pilot.pause()
            drawn[count] = await drawn_ahead(pilot, app.transcript)
            assert "a comment" in "".join(screen(app)[-3:])
            await pilot.press("home")
            await pilot.pause()
            assert "Part 0" in screen(app)[0]
    assert drawn[60] == drawn[3_000] < 20


async def test_paging_through_blocks_that_were_never_drawn_skips_no_line() -> None:
    app = Host()
    async with app.run_test(size=(80, 20)) as pilot:
        transcript = app.transcript
        texts = [" ".join(f"`{number}.{word}`" for word in range(number * 37 % 300)) for number in range(60)]
        transcript.set_blocks([AnswerBlock(id=f"a{number}", text=text) for number, text in enumerate(texts)])
        await pilot.pause()
        pages = 0
        while transcript.scroll_offset.y > 19:
            first = screen(app)[0]
            transcript.action_page_up()
            assert screen(app)[-1] == first
            pages += 1
        assert pages > 10
        for _ in range(pages - 1):
            last = screen(app)[-1]
            transcript.action_page_down()
            assert screen(app)[0] == last


@pytest.mark.more
async def test_lines_far_from_the_view_are_dropped_and_drawn_again() -> None:
    app = Host()
    async with app.run_test(size=(80, 20)) as pilot:
        transcript = app.transcript
        with (
            mock.patch("chatops.tui.transcript.layout._MAX_KEPT", 500),
            mock.patch("chatops.tui.transcript.layout._KEPT_AROUND", 100),
        ):
            transcript.set_blocks(long_answers(60))
            while transcript.scroll_offset.y:
                transcript.action_page_up()
                await pilot.pause()
            assert all(entry.drawn_width for entry in transcript._blocks_layout.entries)
            kept = sum(entry.kept for entry in transcript._blocks_layout.entries)
            assert kept < 1_000
            await pilot.press("end")
            await pilot.press("home")
            await pilot.pause()
            assert "Part 0" in screen(app)[0]
            assert "What it does" in "".join(screen(app))


def test_lines_drawn_again_while_markdown_is_imported_may_be_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    warm_up()
    loaded = list(answer._renderer)
    monkeypatch.setattr(answer, "_renderer", [])
    drawing = AnswerDrawing(width=40, theme=PLAIN)
    drawing.extend("```python\na = 1\n```\n\n")
    drawing.close()
    lines = drawing.finished()
    before = len(lines)
    lines.drop()
    monkeypatch.setattr(answer, "_renderer", loaded)
    assert len([*lines]) == before == 3


async def test_streamed_and_whole_answers_look_the_same_on_the_screen() -> None:
    app = Host()
    async with app.run_test(size=(80, 60)) as pilot:
        transcript = app.transcript
        transcript.set_blocks([])
        transcript.apply([Put(block=AnswerBlock(id="a", text=MARKDOWN[:1], open=True))])
        for start in range(1, len(MARKDOWN), 7):
            transcript.apply([Extend(id="a", text=MARKDOWN[start : start + 7])])
        drawn = transcript._blocks_layout.entries[0].drawing
        transcript.apply([Put(block=AnswerBlock(id="a", text=MARKDOWN))])
        await pilot.pause()
        streamed = screen(app)
        assert drawn is transcript._blocks_layout.entries[0].drawing, "the same text is not drawn again"
        transcript.apply([Put(block=AnswerBlock(id="a", text=MARKDOWN, incomplete=True))])
        await pilot.pause()
        assert "cut off here" in "".join(screen(app))
        transcript.set_blocks([AnswerBlock(id="a", text=MARKDOWN)])
        await pilot.pause()
        assert screen(app) == streamed


async def test_markup_in_a_session_is_plain_text() -> None:
    app = Host()
    async with app.run_test(size=(80, 20)) as pilot:
        app.transcript.set_blocks([UserBlock(id="u", text="[@click=app.bell]x [/foo]")])
        await pilot.pause()
        assert "[@click=app.bell]x [/foo]" in screen(app)[0]
        await pilot.click(Transcript, offset=(20, 0))
        assert app.bells == 0


@pytest.mark.some(1)
@pytest.mark.parametrize("theme", ["textual-light", "textual-dark", "ansi-dark"])
async def test_every_block_is_drawn_in_every_theme_and_size(theme: str) -> None:
    app = Host()
    async with app.run_test(size=(80, 20)) as pilot:
        app.transcript.set_blocks(samples())
        app.theme = theme
        await pilot.pause()
        for size in ((30, 8), (10, 4), (120, 40)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            assert any(screen(app))


async def test_plain_until_the_parser_is_there_then_markdown() -> None:
    with mock.patch.object(answer, "_renderer", []):
        app = Host()
        async with app.run_test(size=(80, 20)) as pilot:
            app.transcript.set_blocks([AnswerBlock(id="a", text="**bold** words")])
            await pilot.pause()
            assert screen(app)[0].strip() == "**bold** words"
            app.transcript.start_warm_up()
            await app.workers.wait_for_complete()
            await pilot.pause()
            assert screen(app)[0].strip() == "bold words"


async def test_an_idle_transcript_has_no_timer() -> None:
    app = Host()
    async with app.run_test(size=(80, 20)) as pilot:
        app.transcript.set_blocks(users(5))
        for _ in range(50):
            await pilot.pause(0.01)
        assert not app.transcript._slicing
        assert not list(app.transcript._timers)


async def test_operations_before_the_first_layout_are_not_lost() -> None:
    app = Host()
    async with app.run_test(size=(80, 20)) as pilot:
        transcript = Transcript()
        transcript.id = "second"
        await app.mount(transcript)
        transcript.apply([Put(block=UserBlock(id="u", text="early"))])
        await pilot.pause()
        assert any("early" in transcript.render_line(y).text for y in range(3))
