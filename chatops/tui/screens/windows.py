"""Functions that open the other screens. Each screen is imported when first shown, to keep the first paint fast."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from chatops.domain.errors import ChatopsError
from chatops.domain.ids import SessionId
from chatops.tui.commands.face import Face
from chatops.tui.keys import KeyGroup

if TYPE_CHECKING:
    from textual.app import App

    from chatops.engine.workflow.state import AwaitingReview
    from chatops.runtime.workflow import WorkflowRun
    from chatops.tui.dialogs.approval import ApprovalScreen
    from chatops.tui.dialogs.review import ReviewScreen
    from chatops.tui.screens.chat import ChatScreen
    from chatops.tui.workflow.view import RunView


def open_approval(app: "App[Any]") -> "ApprovalScreen | None":
    """Return the approval dialog if it is open, even below a question of its own."""
    for screen in app.screen_stack:
        if screen.has_class("approval-screen"):
            return screen  # type: ignore[return-value]
    return None


def push_approval(app: "App[Any]", chat: "ChatScreen", *, closed: Callable[[None], None]) -> None:
    """Open the approval dialog over the chat."""
    from chatops.tui.dialogs.approval import ApprovalScreen

    composer = chat.composer
    dialog = ApprovalScreen(
        chat.session,
        clock=chat.clock,
        typed_at=composer.typed_at,
        typed_ahead=composer.append_typed,
        pasted=composer.insert_paste,
        parting=chat.say,
    )
    app.push_screen(dialog, closed)


def open_review(app: "App[Any]") -> "ReviewScreen | None":
    """Return the review dialog if it is open, even below a question of its own."""
    for screen in app.screen_stack:
        if screen.has_class("review-screen"):
            return screen  # type: ignore[return-value]
    return None


def push_review(
    app: "App[Any]",
    chat: "ChatScreen",
    run: "WorkflowRun",
    wanted: "AwaitingReview",
    *,
    closed: Callable[[None], None],
) -> None:
    """Open the review dialog: ask how a run continues."""
    from chatops.tui.dialogs.review import ReviewScreen

    composer = chat.composer
    dialog = ReviewScreen(
        run,
        wanted,
        clock=chat.clock,
        typed_at=composer.typed_at,
        typed_ahead=composer.append_typed,
        pasted=composer.insert_paste,
        parting=chat.say,
    )
    app.push_screen(dialog, closed)


def close_dialogs(app: "App[Any]") -> None:
    """Close the dialogs about the previous session, because they can no longer decide anything."""
    for dialog in (open_approval(app), open_review(app)):
        if dialog is not None:
            dialog.finish()


def push_steps(app: "App[Any]", view: "RunView", *, chosen: Callable[[int], None]) -> None:
    """Let the user choose a step of a run."""
    from chatops.tui.dialogs.steps import step_picker

    def taken(key: str | None) -> None:
        if key is not None:
            chosen(int(key))

    app.push_screen(step_picker(view), taken)


def push_text(app: "App[Any]", title: str, *, text: str) -> None:
    """Show a text."""
    from chatops.tui.dialogs.text import TextScreen

    app.push_screen(TextScreen(title, text=text))


def push_help(app: "App[Any]", *, first: KeyGroup = "message") -> None:
    """Show keys and commands, those of the place `first` before the others."""
    from chatops.tui.screens.help import help_text

    push_text(app, "Help", text=help_text(first=first))


async def push_roles(app: "App[Any]", face: Face) -> None:
    """Let the user choose a role. Their tools are computed in a thread, because there may be thousands of roles."""
    from chatops.tui.dialogs.roles import role_picker

    current = face.session.snapshot().role
    rows = await asyncio.to_thread(face.host.roles)

    async def chosen(name: str) -> None:
        if name != current:
            await face.session.owned("The role was not switched").switch_role(name)

    app.push_screen(role_picker(rows, current=current), _then(app, face, chosen))


def push_models(app: "App[Any]", face: Face) -> None:
    """Let the user choose a model."""
    from chatops.tui.commands.handlers import choose_model
    from chatops.tui.dialogs.roles import model_picker

    async def chosen(name: str) -> None:
        await choose_model(face, name)

    picker = model_picker(face.host.models(), current=face.session.snapshot().model)
    app.push_screen(picker, _then(app, face, chosen))


def push_personas(app: "App[Any]", face: Face) -> None:
    """Let the user choose a persona."""
    from chatops.tui.dialogs.roles import name_picker

    async def chosen(name: str) -> None:
        await face.session.owned("The persona was not changed").set_persona(name)
        face.say(f"Persona: {name}, from the next model call on.")

    picker = name_picker("Persona", names=face.host.personas(), current=face.host.persona(face.session))
    app.push_screen(picker, _then(app, face, chosen))


def push_themes(app: "App[Any]", face: Face) -> None:
    """Let the user choose a theme."""
    from chatops.tui.dialogs.roles import name_picker

    async def chosen(name: str) -> None:
        face.use_theme(name)

    picker = name_picker("Theme", names=sorted(app.available_themes), current=app.theme)
    app.push_screen(picker, _then(app, face, chosen))


async def push_sessions(app: "App[Any]", face: Face) -> None:
    """Let the user choose a session."""
    from chatops.tui.dialogs.sessions import session_picker

    current = face.session.snapshot().session_id
    try:
        rows = await face.host.sessions()
    except ChatopsError as error:
        face.say(f"{error} {error.advice}".strip())
        return

    async def chosen(key: str) -> None:
        if key != current:
            await face.change_session(face.host.open_session(SessionId(key)))

    app.push_screen(session_picker(rows, current=current), _then(app, face, chosen))


async def push_pending(app: "App[Any]", face: Face) -> None:
    """Let the user choose a session with something to decide. If only this one has, open its dialog."""
    from chatops.tui.dialogs.sessions import pending_picker

    current = face.session.snapshot().session_id
    try:
        rows = await face.host.pending()
    except ChatopsError as error:
        face.say(f"{error} {error.advice}".strip())
        return
    if all(row.id == current for row in rows):
        face.open_pending()
        return

    async def chosen(key: str) -> None:
        if key != current:
            await face.change_session(face.host.open_session(SessionId(key)))
        face.open_pending()

    app.push_screen(pending_picker(rows, current=current), _then(app, face, chosen))


def _then(app: "App[Any]", face: Face, chosen: Callable[[str], Awaitable[None]]) -> Callable[[str | None], None]:
    """Return the callback for a picker's result. It shows an error as a notice."""

    async def act(key: str) -> None:
        try:
            await chosen(key)
        except ChatopsError as error:
            face.say(f"{error} {error.advice}".strip())

    def taken(key: str | None) -> None:
        if key is not None:
            app.run_worker(act(key), group="picked")

    return taken
