"""Opening a stored session with another model than it had, or whose model or persona no longer exists."""

from pathlib import Path

import pytest

from chatops.domain.errors import ConfigError
from chatops.domain.events import Event, Notice, TurnStatus
from chatops.domain.messages import RoleSwitchMessage
from chatops.wiring.app import App
from chatops.wiring.stored import Options
from tests.runtime.demo_session import demo_session, settled

MODEL = "There is no model 'gone'. The role's own model is used until it exists again; /model chooses another."
PERSONA = "There is no persona 'gone'. The role's own persona is used until it exists again; /persona chooses another."


@pytest.mark.parametrize(
    ("pin", "persona", "expected"), [("gone", "gone", [MODEL, PERSONA]), ("", "gone", [PERSONA]), ("", "", [])]
)
async def test_a_missing_model_or_persona_is_reported_and_the_pending_call_stays(
    pin: str, persona: str, expected: list[str], tmp_path: Path
) -> None:
    async with demo_session(tmp_path) as (app, session, _):
        await session.submit("run `touch made.txt`")
        assert await settled(session) is TurnStatus.PAUSED
        app.store.update_session(session.session_id, model_pin=pin, persona=persona)
        await session.aclose()
        again, events = await app.open_session(session.session_id, attended=True), list[Event]()
        again.subscribe(lambda published: events.append(published.event))
        await again.resume()
        assert await settled(again) is TurnStatus.PAUSED
        assert [call.call.name for call in again.pending] == ["shell_exec"]
        assert [event.text for event in events if isinstance(event, Notice)] == expected
        assert app.store.session(session.session_id).model_pin == pin, "it is used again when it is there again"


@pytest.mark.parametrize("finished", [True, False])
async def test_a_model_on_the_command_line_is_pinned_with_a_divider(finished: bool, tmp_path: Path) -> None:
    async with demo_session(tmp_path) as (_, session, _events):
        await session.submit("hello" if finished else "run `touch made.txt`")
        await settled(session)
    app = App(Options(workspace=tmp_path, role="coder", model="env"))
    try:
        opened = await app.open_session(session.session_id, attended=True)
        (divider,) = (one for one in opened.snapshot().messages if isinstance(one, RoleSwitchMessage))
        assert (divider.before, divider.after) == ("coder", "coder") and "env" in divider.model.lower()
        assert opened.settings.model_pin == app.store.session(session.session_id).model_pin == "env"
        assert len(opened.pending) == (0 if finished else 1)
    finally:
        await app.aclose()


async def test_a_model_on_the_command_line_must_exist(tmp_path: Path) -> None:
    async with demo_session(tmp_path) as (_, session, _told):
        await session.submit("hello")
        await settled(session)
    app = App(Options(workspace=tmp_path, role="coder", model="gone"))
    with pytest.raises(ConfigError, match="There is no model 'gone'"):
        await app.open_session(session.session_id, attended=True)
    await app.aclose()
