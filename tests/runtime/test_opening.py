"""Opening a stored session whose model or persona no longer exists: its pending calls still wait for the user."""

from pathlib import Path

import pytest

from chatops.domain.errors import ConfigError
from chatops.domain.events import Event, Notice, TurnStatus
from chatops.wiring.app import App
from chatops.wiring.options import Options
from tests.runtime.demo_session import demo_session, settled

MODEL = "There is no model 'gone'. The role's own model is used until it is there again; /model chooses another."
PERSONA = (
    "There is no persona 'gone'. The role's own persona is used until it is there again; /persona chooses another."
)


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


async def test_a_model_on_the_command_line_must_exist(tmp_path: Path) -> None:
    async with demo_session(tmp_path) as (_, session, _told):
        await session.submit("hello")
        await settled(session)
    app = App(Options(workspace=tmp_path, role="coder", model="gone"))
    with pytest.raises(ConfigError, match="There is no model 'gone'"):
        await app.open_session(session.session_id, attended=True)
    await app.aclose()
