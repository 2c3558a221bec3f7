"""Textual's private names: each works as `chatops.tui.textual_internals` expects, and nothing else uses one."""

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import textual
from textual import events
from textual._compositor import Compositor
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.color import Color
from textual.geometry import Region
from textual.message import Message
from textual.message_pump import MessagePump
from textual.notifications import Notification, SeverityLevel
from textual.screen import Screen
from textual.strip import Strip
from textual.widgets import Input, Static, TextArea

import chatops.tui
from chatops.tui import textual_internals
from chatops.tui.textual_internals import (
    AppHooks,
    ErrorBoundary,
    FrameHook,
    InputHooks,
    KeyParser,
    LateClickHook,
    TextAreaHooks,
    bound_actions,
    refresh_notices,
    report_error,
    toast_rows,
    wait_until_mounted,
)
from tests.support.cases import for_each
from tests.support.waiting import until

SOURCES = Path(inspect.getfile(chatops.tui)).parent
INTERNALS = "chatops.tui.textual_internals"
_PRIVATE = re.compile(r"_[a-z]\w*")

OVERRIDDEN = (
    (MessagePump, "_dispatch_message", ["self", "message"]),
    (App, "_ready", ["self"]),
    (App, "_display", ["self", "screen", "renderable"]),
    (App, "_handle_exception", ["self", "error"]),
    (App, "_refresh_notifications", ["self"]),
    (Screen, "_forward_event", ["self", "event"]),
    (Screen, "_extend_compose", ["self", "widgets"]),
    (Screen, "_screen_resized", ["self", "size"]),
    (Screen, "_refresh_layout", ["self", "size", "scroll"]),
    (Screen, "_on_timer_update", ["self"]),
    (Screen, "_compositor_refresh", ["self"]),
    (Compositor, "render_partial_update", ["self"]),
    (TextArea, "_set_document", ["self", "text", "language"]),
    (TextArea, "_recompute_cursor_offset", ["self"]),
    (Input, "_position_to_cell", ["self", "position"]),
)


@for_each(("owner", "name", "parameters"), OVERRIDDEN, ids=lambda value: str(value))
def test_an_overridden_method_has_the_parameters_it_had(owner: type, name: str, parameters: list[str]) -> None:
    assert list(inspect.signature(vars(owner)[name]).parameters) == parameters


def test_an_overridden_property_is_still_one() -> None:
    assert isinstance(vars(Input)["_value"], property)


_MAKE_CLASSES = """
import textual.widgets
from textual.dom import DOMNode
all_of_them = [getattr(textual.widgets, name) for name in textual.widgets.__all__]

class Computing(textual.widgets.Input, inherit_bindings=False, inherit_css=False):
    BINDINGS = [("f5", "one", "One")]
    def compute_value(self): ...
    def _compute_other(self): ...

def derived(cls):
    yield cls
    for each in cls.__subclasses__():
        yield from derived(each)

for cls in [*dict.fromkeys(derived(DOMNode))][1:]:
    bindings = cls.__dict__.get("_merged_bindings")
    print(cls, sorted(vars(cls)), list(cls._reactives.items()), sorted(cls._computes))
    print(bindings and bindings.key_to_bindings, cls._css_type_name, sorted(cls._css_type_names))
    print(cls._inherit_css, cls._inherit_bindings, cls._inherit_component_classes)
"""


def test_a_class_of_a_widget_has_what_textual_would_set() -> None:
    def made(first: str) -> str:
        done = subprocess.run([sys.executable, "-c", first + _MAKE_CLASSES], capture_output=True, text=True, check=True)
        return re.sub(" at 0x[0-9a-f]+", "", done.stdout)

    own = made("import sys; assert 'chatops' not in sys.modules")
    assert "Computing" in own
    assert made("import chatops.tui") == own


# Each hook is called by Textual


class Counted(Static):
    """A widget that counts how often it is drawn."""

    drawn = 0

    def render_lines(self, crop: Region) -> list[Strip]:
        self.drawn += 1
        return super().render_lines(crop)


async def test_a_frame_renders_what_has_changed_and_nothing_between() -> None:
    class Three(FrameHook):
        def compose(self) -> ComposeResult:
            yield from (Counted(), Counted(), Counted())

    class Shown(App[None]):
        def get_default_screen(self) -> Screen[None]:
            return Three()

    app = Shown()
    async with app.run_test() as pilot:
        await pilot.pause()
        rows = list(app.screen.query(Counted))
        before = [row.drawn for row in rows]
        rows[0].refresh()
        rows[2].refresh()
        await until(lambda: rows[2].drawn > before[2])
        assert rows[0].drawn > before[0]
        assert rows[1].drawn == before[1]


async def test_a_layout_is_drawn_once_with_all_that_has_changed() -> None:
    class Screened(Host):
        def get_default_screen(self) -> Screen[None]:
            return FrameHook()

    app = Screened(Static("x"))
    async with app.run_test() as pilot:
        await pilot.pause()
        app.calls.clear()
        app.screen.post_message(events.Resize(app.size, app.size))
        await pilot.pause()
        assert app.calls == []
        app.screen.refresh(layout=True)
        await until(lambda: "frame" in app.calls)
        await pilot.pause()
        assert app.calls == ["frame"]
        await pilot.resize_terminal(30, 10)
        await until(lambda: app.screen.size == (30, 10) and app.calls.count("frame") > 1)


async def test_a_text_area_has_the_colours_that_textual_gives_it_after_each_change_of_style() -> None:
    class Styled(Host):
        CSS = ".other { color: red; }"

    areas = TextAreaHooks("text"), TextArea("text")
    app = Styled(*areas)
    async with app.run_test() as pilot:
        app.set_focus(None)
        before = None
        for theme, classes in (("textual-light", ""), ("textual-dark", ""), ("textual-dark", "other")):
            app.theme = theme
            for area in areas:
                area.set_classes(classes)
            await pilot.pause()
            ours, plain = (list(area.render_lines(area.size.region)[1]) for area in areas)
            assert ours == plain != before
            before = ours


async def test_a_frame_that_is_dropped_in_a_batch_is_painted_after_it() -> None:
    class Shown(AppHooks):
        def compose(self) -> ComposeResult:
            yield Counted()

    app = Shown()
    async with app.run_test() as pilot:
        await pilot.pause()
        row = app.query_one(Counted)
        with app.batch_update():
            row.refresh()
            before = row.drawn
            while row.drawn == before:
                app.refresh_css(animate=False)
                await pilot.pause(0.01)
            dropped = row.drawn
        app.screen.check_idle()
        await until(lambda: row.drawn > dropped)


class Faulty(ErrorBoundary, Static):
    """A widget whose handler fails once for each key."""

    class Poke(Message):
        pass

    def __init__(self) -> None:
        super().__init__("")
        self.poked = 0

    def on_faulty_poke(self) -> None:
        self.poked += 1
        raise ValueError(f"poke {self.poked}")


class Host(AppHooks):
    """An app that notes which hooks were called."""

    CSS = "ToastRack { layer: default; dock: top; visibility: visible; height: auto; }"

    def __init__(self, *widgets: Static | TextArea | Input) -> None:
        super().__init__()
        self.widgets = widgets
        self.calls: list[str] = []
        self.notices: list[str] = []
        self.skipping = False

    def compose(self) -> ComposeResult:
        yield from self.widgets

    async def before_first_message(self) -> None:
        await wait_until_mounted(self.screen)
        self.calls.append("ready")

    def on_mount(self) -> None:
        self.calls.append("mount")

    def skips_frame(self) -> bool:
        self.calls.append("frame")
        return self.skipping

    def shows_notices(self, notices: list[Notification]) -> bool:  # type: ignore[override]
        self.notices = [notice.message for notice in notices]
        return "toast" not in self.notices


class Deaf(Host):
    """An app that continues after errors, as with a terminal."""

    is_headless = False

    def handle_error(self, error: Exception) -> None:
        self.calls.append(str(error))


async def test_a_widget_handles_messages_after_its_handler_has_raised() -> None:
    widget = Faulty()
    async with (app := Deaf(widget)).run_test() as pilot:
        widget.post_message(Faulty.Poke())
        widget.post_message(Faulty.Poke())
        await pilot.pause()
        assert [call for call in app.calls if "poke" in call] == ["poke 1", "poke 2"]


async def test_the_app_waits_before_its_first_message_and_is_asked_for_each_frame() -> None:
    app = Host(Static("x"))
    async with app.run_test() as pilot:
        assert "ready" in app.calls
        app.calls.clear()
        app.skipping = True
        app.query_one(Static).update("y")
        await pilot.pause()
        assert "frame" in app.calls


async def test_notices_are_given_to_the_app_which_may_leave_them_to_textual() -> None:
    severity: SeverityLevel = "error"
    app = Host(Static("x"))
    async with app.run_test(notifications=True) as pilot:
        app.notify("line", severity=severity)
        await pilot.pause()
        assert app.notices == ["line"]
        assert toast_rows(app.screen) == 0
        app.notify("toast")
        await until(lambda: toast_rows(app.screen) > 0)
        app.notices = []
        refresh_notices(app)
        assert app.notices == ["line", "toast"]


async def test_an_error_can_be_passed_to_the_app_without_raising_it() -> None:
    app = Deaf()
    report_error(app, ValueError("x"))
    assert app.calls == ["x"]


async def test_quitting_from_a_task_of_its_own_has_the_context_of_the_app() -> None:
    from textual._context import active_app

    app = Host()
    with app.quit_context():
        assert active_app.get() is app


async def test_a_click_on_a_toast_that_is_gone_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tolerant(LateClickHook, Screen[None]):
        pass

    def gone(self: object, event: events.Event) -> None:
        raise AttributeError("'NoneType' object has no attribute 'remove'")

    monkeypatch.setattr(Screen, "_forward_event", gone)
    screen = Tolerant()
    screen._forward_event(_click(events.MouseDown))
    with pytest.raises(AttributeError):
        screen._forward_event(_click(events.MouseUp))


def _click(kind: type[events.MouseEvent]) -> events.MouseEvent:
    return kind(None, x=0, y=0, delta_x=0, delta_y=0, button=1, shift=False, meta=False, ctrl=False)


async def test_the_actions_that_a_widget_binds_to_a_key_are_found() -> None:
    class Bound(Static):
        BINDINGS = [Binding("f5", "one", "One"), Binding("f6", "two", "Two")]  # noqa: RUF012

    assert bound_actions(Bound(), "f5") == ["one"]
    assert bound_actions(Bound(), "f7") == []


async def test_loaded_text_is_masked_and_a_removed_line_can_be_undone() -> None:
    class Masking(TextAreaHooks):
        def masked(self, text: str) -> str:
            return text.replace("\u200b", "#")

    area = Masking("a\u200b")
    async with Host(area).run_test() as pilot:
        assert area.document.text == "a#"
        area.load_text("\u200bb")
        assert area.document.text == "#b"
        area.focus()
        area.move_cursor(area.document.end)
        await pilot.press("enter", "enter")
        area.undo()
        area.undo()
        await pilot.pause()
        assert area.document.text == "#b"


async def test_an_input_draws_another_text_with_the_cursor_in_place() -> None:
    class Stars(InputHooks):
        def shown(self, value: str) -> str:
            return value.replace("\u200b", "*")

    field = Stars()
    async with Host(field).run_test() as pilot:
        field.focus()
        field.value = "a\u200bb"
        field.cursor_position = 2
        await pilot.pause()
        assert "a*b" in field.render_line(0).text
        assert field.cursor_screen_offset.x - field.content_region.x == 2


def test_the_parser_tells_if_it_waits_and_ends_the_last_key() -> None:
    parser = KeyParser()
    assert [event.key for event in parser.feed("a") if isinstance(event, events.Key)] == ["a"]
    assert list(parser.feed("\x1b[1;")) == []
    assert parser.waits
    assert list(parser.settle())
    assert not parser.waits


# Nothing else uses a private name


def _modules() -> Iterator[str]:
    for found in pkgutil.walk_packages([str(SOURCES)], "chatops.tui."):
        yield found.name


@cache
def _private_names_of(owner: type) -> frozenset[str]:
    """Return the private names that a class of Textual defines or assigns to ``self``."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
    assigned = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    return frozenset(name for name in assigned | set(vars(owner)) if _PRIVATE.fullmatch(name))


def _bases_in_textual(owner: type) -> list[type]:
    return [base for base in owner.__mro__ if base.__module__.partition(".")[0] == textual.__name__]


def _our_classes() -> Iterator[type]:
    for module_name in _modules():
        module = importlib.import_module(module_name)
        for value in vars(module).values():
            if isinstance(value, type) and value.__module__ == module_name and issubclass(value, MessagePump):
                yield value


def test_variables_that_change_before_there_is_a_screen_are_applied() -> None:
    class Themed(AppHooks):
        """An app whose rule depends on the theme."""

    app = Themed()
    app.stylesheet.add_source("Static { color: $primary; }")
    app.stylesheet.parse()
    before = app.stylesheet.rules[-1].styles.color
    app.theme = "nord"
    app.refresh_css()
    after = app.stylesheet.rules[-1].styles.color
    assert before != after == Color.parse(app.current_theme.primary)


@for_each("ours", list(_our_classes()), ids=lambda ours: ours.__qualname__)
def test_no_class_uses_or_hides_a_private_name_of_its_base(ours: type) -> None:
    if ours.__module__ == INTERNALS:
        return
    theirs = frozenset[str]().union(*(_private_names_of(base) for base in _bases_in_textual(ours)))
    tree = ast.parse(textwrap.dedent(inspect.getsource(ours)))
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert not (used | defined) & theirs


def test_no_module_imports_or_reads_a_private_name_of_textual() -> None:
    theirs = frozenset[str]().union(
        *(_private_names_of(base) for base in (*_bases_in_textual(App), *_bases_in_textual(Screen)))
    )
    for path in SOURCES.rglob("*.py"):
        if path.stem == "textual_internals":
            continue
        read = {
            node.attr
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Attribute)
            and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
        }
        assert not read & theirs, path
        imported = re.findall(r"^\s*from (textual\S*) import (.+)$", path.read_text(), re.MULTILINE)
        for module, names in imported:
            assert "._" not in module and not re.search(r"\b_\w", names), path


def test_every_private_name_that_is_used_is_in_the_table() -> None:
    source = inspect.getsource(textual_internals)
    table = textual_internals.__doc__ or ""
    tree = ast.parse(source)
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _PRIVATE.fullmatch(node.attr)}
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    for name in used | {name for name in defined if _PRIVATE.fullmatch(name)}:
        assert name in table, name
    for module in re.findall(r"from textual\.(\S*\b_\w+) import", source):
        assert module.rpartition(".")[2] in table, module
