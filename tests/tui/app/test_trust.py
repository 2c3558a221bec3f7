"""The question about what a folder brings: when it opens, and which keys decide it."""

from dataclasses import replace
from typing import cast

import pytest

from chatops.config.trust import ItemState, Listed, TrustQuestion
from chatops.config.workspace_files import Item, ItemKind
from chatops.domain.errors import ChatopsError
from chatops.tui.app import ChatopsApp
from chatops.tui.dialogs.approval import ApprovalScreen
from chatops.tui.dialogs.trust import MAX_TEXT, TrustScreen
from chatops.wiring.first_session import Opener
from tests.tui.app.fakes import Clock, FakeSession, FakeWorkspace, brought, opener, pending_call
from tests.tui.app.support_app import Stage, screen_text, stage


async def asked(running: Stage, question: TrustQuestion | None = None) -> TrustScreen:
    running.workspace.brought = question or brought()
    running.app.chat.run_command("/trust")
    await running.settle()
    screen = running.app.screen
    assert isinstance(screen, TrustScreen)
    return screen


async def test_t_trusts_and_d_declines_what_is_shown() -> None:
    for key, trusted, said in (("t", True, "Trusted."), ("d", False, "Ignored until it changes.")):
        async with stage(size=(100, 40)) as running:
            await asked(running)
            await running.press(key)
            assert running.workspace.trusted == [trusted]
            assert said in running.text and "Not decided" not in running.text
            assert not isinstance(running.app.screen, TrustScreen)


async def test_no_other_key_decides() -> None:
    async with stage(size=(100, 40)) as running:
        screen = await asked(running)
        await running.press("y", "n", "enter", "space", "a", "A", "T", "s", "r", "tab", "ctrl+g")
        assert running.app.screen is screen and running.workspace.trusted == []
        await running.press("escape")
        assert running.workspace.trusted == [] and not isinstance(running.app.screen, TrustScreen)
        assert "Not decided: what you do not trust is ignored. /trust asks." in running.text


@pytest.mark.more
async def test_a_key_pressed_before_it_was_there_decides_nothing() -> None:
    async with stage(size=(100, 40)) as running:
        screen = await asked(running)
        await running.type_fast("t")
        assert running.app.screen is screen and running.workspace.trusted == []


async def test_t_trusts_only_once_the_end_was_on_the_screen() -> None:
    async with stage(size=(80, 16)) as running:
        screen = await asked(running)
        await running.press("home")
        assert "t read on first: " in running.text
        await running.press("t")
        assert running.workspace.trusted == []
        while not screen.payload.end_seen:
            await running.press("t")
        assert running.workspace.trusted == []
        await running.press("t")
        assert running.workspace.trusted == [True]


@pytest.mark.some(1)
@pytest.mark.parametrize("size", [(60, 20), (80, 24)])
async def test_all_keys_stay_on_screen_and_esc_goes_back_to_the_list_first(size: tuple[int, int]) -> None:
    async with stage(size=size) as running:
        screen = await asked(running)
        await running.press("end", "end")
        for key in ("t trust", "d ignore, ask when it changes", "v show the texts", "Esc not now"):
            assert key in running.text, f"{key!r} is missing:\n{running.text}"
        await running.press("v", "end", "end")
        for key in ("t trust", "d ignore, ask when it changes", "v hide the texts", "Esc back to the list"):
            assert key in running.text, f"{key!r} is missing:\n{running.text}"
        await running.press("escape")
        assert running.app.screen is screen and "v show the texts" in running.text
        await running.press("escape")
        assert not isinstance(running.app.screen, TrustScreen) and running.workspace.trusted == []


@pytest.mark.more
async def test_the_texts_are_part_of_what_has_to_be_seen() -> None:
    async with stage(size=(100, 24)) as running:
        screen = await asked(running)
        await running.press("end")
        assert screen.payload.end_seen
        await running.press("v")
        assert "Run make test." in running.text
        assert not screen.payload.end_seen


@pytest.mark.more
async def test_what_is_trusted_already_needs_no_answer() -> None:
    question = brought()
    trusted = replace(question, listed=(replace(question.listed[0], state=ItemState.TRUSTED),))
    async with stage(size=(100, 24)) as running:
        screen = await asked(running, trusted)
        await running.press("t", "d")
        assert running.app.screen is screen and running.workspace.trusted == []
        assert "There is nothing to decide." in running.text


@pytest.mark.more
async def test_of_a_long_text_it_is_said_how_much_is_not_shown() -> None:
    question = brought()
    (notes, *_) = question.listed
    long = replace(notes, item=replace(notes.item, data=b"x" * (MAX_TEXT + 5)))
    async with stage(size=(100, 24)) as running:
        await asked(running, replace(question, listed=(long,)))
        await running.press("v", "end")
        assert "5 more bytes are not shown here." in running.text


@pytest.mark.more
async def test_code_that_is_not_shown_whole_is_not_trusted() -> None:
    code = Item(kind=ItemKind.OWN_TOOL, path="a.py", size=MAX_TEXT + 1, digest="63df52fea0736c25" * 4)
    code = replace(code, data=b"#" * MAX_TEXT + b"x")
    async with stage(size=(100, 24)) as running:
        await asked(running, replace(brought(), listed=(Listed(item=code, state=ItemState.NEW),)))
        await running.press("end", "end", "t", "t")
        assert "Not trusted: this is more code than can be shown." in running.text
        assert running.workspace.trusted == []


@pytest.mark.more
async def test_an_answer_that_cannot_be_stored_is_said_in_the_dialog() -> None:
    async with stage(size=(100, 40)) as running:
        screen = await asked(running)
        running.workspace.refuse = ChatopsError("The disk is full.", advice="Make room.")
        await running.press("t")
        assert running.app.screen is screen and "The disk is full. Make room." in running.text
        running.workspace.refuse = None
        await running.press("t")
        assert running.workspace.trusted == [True]


async def test_it_opens_at_the_start_and_after_a_pending_approval() -> None:
    session, workspace, clock = FakeSession(), FakeWorkspace(), Clock()
    session.ask(pending_call())
    app = ChatopsApp(cast(Opener, opener(session, workspace, trust=brought())), clock=clock)
    with clock.on_events():
        async with app.run_test(size=(100, 40), notifications=True) as pilot:
            running = Stage(app=app, pilot=pilot, session=session, workspace=workspace, clock=clock)
            while not isinstance(app.screen, ApprovalScreen):
                await pilot.pause()
            await running.press("escape")
            while not isinstance(app.screen, TrustScreen):
                clock.pass_(1.0)
                await pilot.pause()
            await running.press("escape")
            assert "Trust what" not in screen_text(app)
            assert workspace.trusted == []


@pytest.mark.more
async def test_revoke_and_a_folder_that_brings_nothing() -> None:
    async with stage() as running:
        running.app.chat.run_command("/trust")
        await running.settle()
        assert "This folder brings nothing that needs your trust." in running.text
        running.app.chat.run_command("/trust revoke")
        await running.settle()
        assert "Nothing in this folder was trusted." in running.text


async def test_a_server_that_needs_a_yes_is_asked_about_by_itself_and_once() -> None:
    text = b"runs: /usr/bin/server --flag"
    item = Item(kind=ItemKind.SERVER_START, path="h", size=len(text), digest="0" * 64, data=text)
    question = TrustQuestion(folder="1", path="/project", listed=(Listed(item=item, state=ItemState.NEW),))
    async with stage(size=(100, 40)) as running:
        running.workspace.starts = question
        running.app.chat.update_now()
        await running.settle()
        assert isinstance(running.app.screen, TrustScreen)
        for shown in (
            "Start these MCP servers?",
            "runs: /usr/bin/server --flag",
            "Start only programs that you trust.",
        ):
            assert shown in running.text
        await running.press("escape")
        running.app.chat.update_now()
        await running.settle()
        assert not isinstance(running.app.screen, TrustScreen) and running.workspace.trusted == []
