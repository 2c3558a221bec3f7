"""All private names of Textual that chatops depends on, in one file.

Textual may change these in any release. So each is used here only and gets a public name that the rest of the package
uses; what concerns the making of classes is in `chatops.tui`, which is imported first.
``tests/tui/test_textual_internals.py`` fails if Textual changes one of them, or if another module uses a private name
of Textual, or by chance defines one.

| private name | used by | for |
|---|---|---|
| ``MessagePump._dispatch_message`` | `ErrorBoundary` | continuing after a handler has raised |
| ``MessagePump._mounted_event`` | `wait_until_mounted` | keys typed before the message field is there |
| ``App._ready`` | `AppHooks.before_first_message` | the same |
| ``App._close_all`` | `AppHooks` | leaving widgets to the end of the process |
| ``App._display`` | `AppHooks.skips_frame`, `cursor_on` | leaving out frames on a slow terminal; the cursor |
| ``Stylesheet._require_parse`` | `AppHooks.refresh_css` | parsing style sheets once at the start |
| ``App._batch_count`` | `AppHooks` | frames that Textual drops |
| ``App._handle_exception`` | `AppHooks.handle_error`, `report_error` | continuing after an error |
| ``App._notifications``, ``App._refresh_notifications`` | `AppHooks.shows_notices`, `refresh_notices` | notices |
| ``App._notifications``, ``App._unnotify`` | `remove_notices` | notices that are no longer true |
| ``App._context`` | `AppHooks.quit_context` | quitting from outside of a message handler |
| ``Screen._forward_event`` | `LateClickHook` | clicks on a toast that is going away; when a click was made |
| ``_compositor.Compositor``, its ``_dirty_regions``, ``_visible_widgets`` | `FrameHook` | cheaper frames |
| ``_compositor.Compositor._get_renders`` | `FrameHook` | the same |
| ``Screen._compositor`` | `FrameHook` | the same |
| ``Screen._update_timer``, ``._on_timer_update`` | `FrameHook` | earlier frames |
| ``Screen._extend_compose`` | `FrameHook` | a screen without toasts and tooltips |
| ``Screen._screen_resized``, ``._refresh_layout`` | `FrameHook` | one layout for each size |
| ``Screen._compositor_refresh``, ``._layout_required``, ``._repaint_required`` | `FrameHook` | drawing once |
| ``widgets._toast.ToastRack`` | `toast_rows` | the height that toasts take |
| ``DOMNode.__init_subclass__``, and all that it sets | `chatops.tui` | making classes of widgets quickly |
| ``DOMNode._bindings`` | `bound_actions` | running a field's bindings in the order of the keys |
| ``document._edit.Edit`` | `TextField.edit` | the parameter of a public method |
| ``TextArea._theme`` | `TextAreaHooks.render_lines` | taking colours from the style sheet only when needed |
| ``TextArea._set_document`` | `TextAreaHooks.masked` | masking text that is loaded |
| ``TextArea._recompute_cursor_offset`` | `TextAreaHooks` | undoing the last line |
| ``Input._value``, ``Input._position_to_cell`` | `InputHooks.shown` | drawing hidden characters |
| ``_xterm_parser.XTermParser``, ``Parser._timeout_time`` | `KeyParser` | the meaning of keys |

Four of these uses, or of public ones, work around faults of Textual 8.2. Each can go once Textual does otherwise:

| where | what Textual does | to see it |
|---|---|---|
| `LateClickHook` | looks for the parent of a removed toast | click on a toast in the moment it goes |
| `TextAreaHooks._recompute_cursor_offset` | reads the cursor's line after undo removed it | undo a new last line |
| `AppHooks._display` | drops a frame of a batch and counts it as painted | change the theme while a batch is open |
| `_OrderedKeys` of `text_fields.py` | runs a field's action too late | Backspace and Enter in one write |
"""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text
from textual import events
from textual._compositor import ChopsUpdate, Compositor
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.document._edit import Edit as Edit
from textual.dom import DOMNode
from textual.expand_tabs import expand_tabs_inline
from textual.geometry import Offset, Region, Size
from textual.message import Message
from textual.message_pump import MessagePump
from textual.notifications import Notification
from textual.screen import Screen
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input, TextArea
from textual.widgets._toast import ToastRack

_FRAME_SECONDS = 1 / 120
"""Least time between two frames. A key waits for so long if it comes right after a frame of a stream."""
_TAB_WIDTH = 4
"""Cells to which Textual's `Input` expands a tab."""


class ErrorBoundary(MessagePump):
    """Mixin for screens and widgets: a handler's exception is reported to the app, and messages are still handled.

    Textual ends the message loop of a widget whose handler raises, and then the app. Nothing that a user typed or
    decided may depend on a drawing that fails. A subclass of the public API sees only its own handlers, not those of
    the widget that it is derived from.
    """

    async def _dispatch_message(self, message: Message) -> None:
        try:
            await super()._dispatch_message(message)
        except Exception as error:
            # Without a terminal, as in tests, errors are raised.
            if self.app.is_headless:
                raise
            report_error(self.app, error)


class AppHooks(App[None]):
    """Hooks of the app for which Textual has no public method."""

    async def _ready(self) -> None:
        await super()._ready()
        await self.before_first_message()

    async def before_first_message(self) -> None:
        """Wait for something before the first message, such as a key, is handled.

        The public `on_ready` and `on_mount` run while keys are already being handled.
        """

    async def _close_all(self) -> None:
        # On a terminal the process ends next, and all widgets with it. Closing them one by one takes 5 to 8 ms.
        if self.is_headless:
            await super()._close_all()

    def refresh_css(self, animate: bool = True) -> None:
        """Apply changed variables. Before there is a screen, Textual would parse all rules twice."""
        if self.screen_stack:
            super().refresh_css(animate)
        else:
            self.stylesheet.set_variables(self.get_css_variables())
            self.stylesheet._require_parse = True
            self.stylesheet.update(self, animate=animate)

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        if self.skips_frame():
            self.post_display_hook()  # Textual calls it after each frame, drawn or not.
            return
        if self._batch_count:
            # Textual drops a frame of a batch although what it shows counts as painted from now on.
            screen.refresh()
        # The frame ends with moving the terminal's cursor there.
        self.cursor_position = self.cursor_on(screen) or self.cursor_position
        super()._display(screen, renderable)

    def cursor_on(self, screen: Screen[Any]) -> Offset | None:
        """Return where the terminal's cursor belongs after a frame: screen readers and magnifiers follow it.

        That is what the screen names as `row_in_focus`, as dialogs and pickers do, else the focused widget; None
        without one. Textual puts it into text fields only, and leaves it where one was before.
        """
        named: Offset | None = getattr(screen, "row_in_focus", None)
        if named is not None or screen.focused is None:
            return named
        if isinstance(screen.focused, TextArea | Input):
            return screen.focused.cursor_screen_offset
        return screen.focused.content_region.offset

    def skips_frame(self) -> bool:
        """Return True to leave out a frame. The driver cannot: it gets parts of frames, and one cannot be left out."""
        return False

    def _handle_exception(self, error: Exception) -> None:
        if self.is_headless:
            super()._handle_exception(error)
        else:
            self.handle_error(error)

    def handle_error(self, error: Exception) -> None:
        """Deal with an error that no handler has caught. Textual ends the app, with no public way to prevent it."""
        super()._handle_exception(error)

    def _refresh_notifications(self) -> None:
        if not self.shows_notices([*self._notifications]):
            super()._refresh_notifications()

    def shows_notices(self, notices: Sequence[Notification]) -> bool:
        """Return True if the app has shown the notices itself. Otherwise Textual shows them as toasts.

        Publicly a toast can be styled, but not replaced by a line of the screen.
        """
        return False

    def quit_context(self) -> AbstractContextManager[None]:
        """Return a context in which widgets can be used from a task that is no message handler and no worker.

        A public worker would be cancelled with all others while the app quits.
        """
        return self._context()


def report_error(app: App[Any], error: Exception) -> None:
    """Pass an error to `AppHooks.handle_error` without raising it. Publicly, only a raised error gets there."""
    app._handle_exception(error)


def refresh_notices(app: App[Any]) -> None:
    """Show the current notices again after one has expired. Textual has no event for that."""
    app._refresh_notifications()


def remove_notices(app: App[Any], texts: Collection[str]) -> None:
    """Remove the notices with one of these texts. Publicly only all of them can be removed."""
    for notice in [notification for notification in app._notifications if notification.message in texts]:
        app._unnotify(notice, refresh=False)
    app._refresh_notifications()


def remove_untrue(app: App[Any]) -> None:
    """Remove the notices whose condition has ended, see `show_notice`."""
    conditions: dict[str, Callable[[], bool]] = getattr(app, "conditions", {})
    if ended := [text for text, holds in conditions.items() if not holds()]:
        remove_notices(app, ended)
    for text in ended:
        del conditions[text]


async def wait_until_mounted(widget: Widget) -> None:
    """Wait until the handlers of a widget's mounting have run. The public `is_mounted` cannot be awaited."""
    await widget._mounted_event.wait()


class LateClickHook(MessagePump):
    """Mixin for screens: a click on a toast that has just been removed does nothing.

    Textual looks for the parent of the toast and fails. The toast's own handlers are not called. And a `Click` has the
    time at which it was handled.
    """

    mouse_down_at = math.inf
    """Monotonic seconds when a button of the mouse was pressed last."""

    def _forward_event(self, event: events.Event) -> None:
        if isinstance(event, events.MouseDown):
            self.mouse_down_at = event.time
        try:
            super()._forward_event(event)  # type: ignore[misc]
        except AttributeError:
            if not isinstance(event, events.MouseDown):
                raise


class FrameHook(Screen[None]):
    """A screen that renders only what a frame shows, once, and sooner. Publicly a compositor cannot be chosen.

    A step of Textual's timer (`_on_timer_update`) first makes a layout if one is required (`_refresh_layout`) and draws
    what that has changed. Then it draws the other changes, or the whole screen if `_repaint_required`. It draws by
    `_compositor_refresh` both times. Before the whole screen, the first time is work for nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self._compositor = _FrameCompositor()
        self.laid_out_for: Size | None = None
        """The size of the terminal that the last layout was made for."""
        self.draws_all_later = False
        """True while a layout is made before the whole screen is drawn: `_compositor_refresh` then does nothing."""

    def _extend_compose(self, widgets: list[Widget]) -> None:
        """Add no widgets for toasts and tooltips, which this screen never shows. Publicly only tests can do without."""

    @cached_property
    def _update_timer(self) -> Timer:
        # Publicly the rate is a variable of the environment, which tools would inherit.
        return self.set_interval(_FRAME_SECONDS, self._on_timer_update, pause=True)

    def _screen_resized(self, size: Size) -> None:
        # At the start three events name the same size.
        if size != self.laid_out_for:
            super()._screen_resized(size)

    def _refresh_layout(self, size: Size | None = None, scroll: bool = False) -> None:
        if size and self.laid_out_for is None:
            # The first layout tells each widget its size, which needs a second one. The step called here draws that.
            self.draws_all_later = self._repaint_required = True
            self.call_next(self._on_timer_update)
        self.laid_out_for = size or self.laid_out_for
        super()._refresh_layout(size, scroll)
        self.draws_all_later = False

    def _on_timer_update(self) -> None:
        self.draws_all_later = self._layout_required and self._repaint_required
        super()._on_timer_update()
        self.draws_all_later = False

    def _compositor_refresh(self) -> None:
        if not self.draws_all_later:
            super()._compositor_refresh()


class _FrameCompositor(Compositor):
    """Renders the widgets that have changed.

    Textual renders each widget in the box around all changes, such as those between transcript and status line. Here it
    sees only the changed ones as visible, for the time of one rendering.
    """

    def render_partial_update(self) -> ChopsUpdate | None:
        changed, visible = self._dirty_regions.copy(), self.visible_widgets
        _ = self.cuts  # Made of all visible widgets when first asked for, so ask now. Kept until the layout changes.
        self._visible_widgets = shown = {
            widget: (region, clip)
            for widget, (region, clip) in visible.items()
            if any(dirty.overlaps(region) for dirty in changed)
        }
        try:
            return super().render_partial_update()
        finally:
            if self._visible_widgets is shown:  # Otherwise rendering has caused a layout, which has reset it.
                self._visible_widgets = visible

    def _get_renders(self, crop: Region | None = None) -> Iterable[tuple[Region, Region, list[Strip]]]:
        """Yield region, clip and lines of each widget, the lines only of the rows that `crop` covers."""
        for widget, (region, clip) in self.visible_widgets.items():
            if crop is not None:
                clip = clip.intersection(Region(0, crop.y, self.size.width, crop.height))
            if shown := region.intersection(clip):
                yield region, clip, widget.render_lines(shown.translate(-region.offset))


def toast_rows(screen: Screen[Any]) -> int:
    """Return how many rows at the top of a screen the toasts take. The class of their container is private."""
    return sum(child.outer_size.height for child in screen.children if isinstance(child, ToastRack) and child.display)


def bound_actions(node: DOMNode, key: str) -> list[str]:
    """Return the actions that a widget itself binds to a key.

    The public `Screen.active_bindings` collects the bindings of all widgets, too slow for each key.
    """
    return [binding.action for binding in node._bindings.key_to_bindings.get(key, ())]


class TextAreaHooks(TextArea):
    """A text area that masks loaded text, and that can undo a line that the cursor is on.

    It is drawn at each key, so its colours are taken from the style sheet only after they may have changed.
    """

    coloured_theme: object = None
    """The theme that has its colours; None after the styles have changed."""

    def notify_style_update(self) -> None:
        """Take the colours anew with the next drawing."""
        super().notify_style_update()
        self.coloured_theme = None

    def render_lines(self, crop: Region) -> list[Strip]:
        """Draw lines. Textual takes the colours anew each time, which takes longer than the drawing itself."""
        if self.coloured_theme is self._theme:
            # `TextArea` only adds the colours to what its base class does.
            return super(TextArea, self).render_lines(crop)
        self.coloured_theme = self._theme
        return super().render_lines(crop)

    def masked(self, text: str) -> str:
        """Return the text to put into the document instead of `text`."""
        return text

    def _set_document(self, text: str, language: str | None) -> None:
        # The constructor calls this and not the public `load_text`.
        super()._set_document(self.masked(text), language)

    def _recompute_cursor_offset(self) -> None:
        # Undo calls this before it moves the cursor, which may be on a line that is gone. It then raises an error.
        if self.cursor_location[0] < self.document.line_count:
            super()._recompute_cursor_offset()  # type: ignore[no-untyped-call]


class InputHooks(Input):
    """An input that draws something else than its value. The public `highlighter` would leave the cursor misplaced."""

    def shown(self, value: str) -> str:
        """Return the text to draw for `value`, of the same length."""
        return value

    @property
    def _value(self) -> Text:
        value = super()._value
        value.plain = self.shown(value.plain)
        return value

    def _position_to_cell(self, position: int) -> int:
        return cell_len(expand_tabs_inline(self.shown(self.value[:position]), _TAB_WIDTH))


class KeyParser(XTermParser):
    """Parses characters and sequences. Its input is always complete, so that it never has to wait for more.

    The parser is the only place that knows the meaning of some hundred sequences. No driver offers it publicly.
    """

    @property
    def waits(self) -> bool:
        """True if the last sequence is unknown so far and more input could complete it."""
        return self._timeout_time is not None

    def settle(self) -> Iterable[Message]:
        """Yield the keys at the end of the last text, because nothing follows it."""
        if self.waits:
            self._timeout_time = 0.0  # The time in which more input could come is over.
            yield from self.tick()
