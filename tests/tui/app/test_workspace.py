"""The workspace behind the chat, over a real app on the demo model: texts, titles, copies, files."""

import asyncio
import json
import os
import re
import stat
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from chatops.config.prompt_files import MemoryScope
from chatops.domain.decisions import Approved
from chatops.domain.errors import ChatopsError, ConfigError
from chatops.domain.ids import SessionId, TurnId
from chatops.domain.messages import SummaryMessage, UserMessage
from chatops.domain.tools import Verdict
from chatops.policy.budget import Budget
from chatops.policy.rule_syntax import suggest_exact
from chatops.runtime.session import Session, owned
from chatops.store.audit import entry_of
from chatops.tui.commands.replies import (
    Choose,
    Context,
    EditText,
    Notify,
    Replies,
    ScreenAction,
    ShowChanges,
    ShowRights,
    ShowSession,
    ShowText,
    Then,
)
from chatops.tui.commands.table import run_command
from chatops.tui.dialogs.picker import Picker
from chatops.tui.dialogs.text import Share
from chatops.wiring import upkeep
from chatops.wiring import workspace as workspace_module
from chatops.wiring.app import App
from chatops.wiring.explain import RightsMatrix
from chatops.wiring.first_session import open_first_session
from chatops.wiring.stored import Options
from chatops.wiring.upkeep import Upkeep
from chatops.wiring.workspace import TrustQuestions, Workspace
from tests.store import storekit as kit
from tests.support.waiting import PATIENCE, until
from tests.tools.running import needs_sandbox


@dataclass
class CommandLine:
    """Context of a slash command, and its reply."""

    app: App
    workspace: Workspace
    session: Session
    said: str = ""
    shown: str = ""
    shares: Sequence[Share] = ()
    asked: EditText | Choose | None = None
    rights: RightsMatrix | None = None
    changes: list[ShowChanges] = field(default_factory=list)

    async def type(self, text: str) -> bool:
        """Run a slash command. False if it was refused."""
        replies = await run_command(self._context, text)
        await self._perform(replies)
        return ScreenAction.GIVE_BACK not in replies

    @property
    def _context(self) -> Context:
        return Context(opened=(self.session, self.workspace))

    async def _perform(self, replies: Replies) -> None:
        for reply in replies:
            match reply:
                case ShowSession():
                    before, opened = self.session, await reply.open()
                    self.session = owned(opened, "It was not opened")
                    await before.aclose()
                case Then():
                    await self._perform(await reply.handler(self._context, reply.argument))
                case Notify():
                    self.said = reply.text
                case ShowText():
                    self.shown, self.shares = reply.text, reply.shares
                case ShowChanges():
                    self.changes.append(reply)
                case ShowRights():
                    self.rights = reply.rights
                case EditText() | Choose():
                    self.asked = reply
                case _:
                    pass

    async def send(self, text: str) -> None:
        """Send a message and wait for the answer."""
        await self.session.submit(text)
        await self.session.settle()

    async def titles(self) -> list[str]:
        """The titles of all sessions, newest first."""
        return [row.title for row in await self.workspace.sessions.listed()]


@pytest.fixture
async def commands(tmp_path: Path) -> AsyncIterator[CommandLine]:
    """A new session as coder in an empty workspace."""
    workspace = tmp_path / "project"
    workspace.mkdir()
    (workspace / "note.txt").write_text("due on Friday")
    app = App(Options(workspace=workspace, role="coder"))
    app.prepare()
    yield CommandLine(app=app, workspace=Workspace(app), session=await app.open_session(None, attended=True))
    await app.aclose()


async def test_a_model_that_is_not_available_is_marked_and_not_pinned(commands: CommandLine) -> None:
    rows = {row.name: row for row in commands.workspace.models()}
    assert rows["env"].missing == "It has no model_name."
    assert not rows["demo"].missing
    assert [name for name, row in rows.items() if row.is_set_up] == ["demo"]
    assert not await commands.type("/model env")
    assert commands.said.startswith("env is not available here: it has no model_name")
    assert commands.session.settings.model_pin == ""
    assert commands.session.grant().models[0].name == "demo"


async def test_a_model_is_named_once(tmp_path: Path) -> None:
    servers = {"type": "openai", "api_url": "http://127.0.0.1:9/v1", "model_name": "qwen3", "label": "qwen3"}
    file = tmp_path / "registry.json"
    file.write_text(json.dumps({"models": {"qwen3": servers, "big": {**servers, "label": "Qwen, big"}}}))
    app = App(Options(workspace=tmp_path, registry=file))
    app.prepare()
    rows = {row.name: (row.label, row.note) for row in Workspace(app).models() if row.is_set_up}
    assert rows == {
        "qwen3": ("", "127.0.0.1:9"),
        "big": ("Qwen, big", "127.0.0.1:9 qwen3"),
        "demo": ("demo (no real model)", ""),
    }
    await app.aclose()


async def test_the_key_is_named_that_says_that_a_model_sees_images(tmp_path: Path) -> None:
    model = {"api_url": "http://127.0.0.1:9/v1", "model_name": "m"}
    file = tmp_path / "registry.json"
    file.write_text(json.dumps({"models": {"mine": model, "blind": {**model, "images": False}}}))
    app = App(Options(workspace=tmp_path, registry=file))
    app.prepare()
    workspace = Workspace(app)
    assert workspace.images_key("mine") == f'"images": true in models.mine of {file}'
    assert not any(workspace.images_key(name) for name in ("blind", "demo", "env", "mine/other"))
    await app.aclose()


async def test_what_was_said_last_in_a_run_is_its_request(commands: CommandLine) -> None:
    runs, sessions = commands.workspace.runs, commands.workspace.sessions
    warnings: list[str] = []
    query = 'replace "Friday" with "Monday" in note.txt'
    opened = await runs.new("code-change", query=query, beside=commands.session, warn=warnings.append)
    run = runs.run_of(opened)
    assert run is not None
    await run.resume()
    await run.settle()
    assert (await sessions.last_said(run.run_id))[0] == f"You: {query}"
    await run.aclose()


async def test_a_new_session_keeps_the_default_model_and_no_model_chosen_for_one_session(tmp_path: Path) -> None:
    file = tmp_path / "registry.json"
    server = {"type": "openai", "api_url": "http://127.0.0.1:9/v1"}
    models = {name: {**server, "model_name": name} for name in ("usual", "other")}
    file.write_text(json.dumps({"models": models, "roles": {"assistant": {"primary": "default"}}}))
    app = App(Options(workspace=tmp_path, registry=file))
    app.prepare()
    commands = CommandLine(app, Workspace(app), await app.open_session(None, attended=True))
    for name, as_default, pinned in (("usual", True, "usual"), ("other", False, "")):
        await commands.session.pin_model(name, as_default=as_default)
        await commands.type("/new")
        assert commands.session.settings.model_pin == pinned
        assert commands.session.grant().models[0].name == "usual"
    await app.aclose()


async def test_the_persona_is_the_role_s_until_the_user_chooses(commands: CommandLine) -> None:
    assert commands.workspace.persona(commands.session) == "default"
    await commands.type("/role reviewer")
    assert commands.workspace.persona(commands.session) == "concise"
    await commands.type("/persona mentor")
    assert commands.workspace.persona(commands.session) == "mentor"


async def test_a_persona_s_paragraphs_are_broken_by_the_screen_and_not_twice(commands: CommandLine) -> None:
    await commands.type("/context")
    (paragraph,) = [line for line in commands.shown.splitlines() if line.startswith("Speak plainly")]
    assert paragraph.endswith("say which one you took.")
    assert "\n\nUse lists and headings" in commands.shown
    assert "\nSystem: " in commands.shown


async def test_the_shares_of_the_context_make_up_the_whole(commands: CommandLine) -> None:
    (commands.app.workspace / "note.txt").write_text("due on Friday " * 200)
    await commands.send("read note.txt")
    await commands.type("/context")
    shares = {share.name: share.size for share in commands.shares}
    assert list(shares) == ["system", "notes", "tools", "messages", "results", "files", "free"][: len(shares)]
    assert shares["system"] > 0 and shares["tools"] > 0
    assert shares["results"] > 500, "the file is in a result, not in a message"
    assert f"r results  {shares['results']:>10,}" in commands.shown
    used = commands.session.snapshot().context_used
    assert sum(size for name, size in shares.items() if name != "free") == used


async def test_trusted_notes_count_for_the_context_at_once(commands: CommandLine) -> None:
    await commands.send("hello")
    before = commands.session.snapshot().context_used
    (commands.app.workspace / "AGENTS.md").write_text("Use British spelling. " * 100)
    question = await commands.workspace.trust.current()
    await commands.workspace.trust.answer(question, trusted=True)
    await until(lambda: "British" in commands.session.grant().prompt)
    await commands.type("/context")
    used = commands.session.snapshot().context_used
    assert used > before + 400
    assert sum(share.size for share in commands.shares if share.name != "free") == used


async def test_the_cost_is_shown_by_day_and_model(commands: CommandLine) -> None:
    await commands.send("hello")
    await commands.type("/cost")
    assert "By day and model, all sessions of this folder" in commands.shown
    assert re.search(r"\d{4}-\d\d-\d\d  demo +█+ +[\d,]+  ", commands.shown)


async def test_the_cost_names_the_budget_and_what_is_left_of_it(tmp_path: Path) -> None:
    app = App(Options(workspace=tmp_path, role="coder", budget=Budget(cost=0.5, tokens=200_000)))
    app.prepare()
    commands = CommandLine(app=app, workspace=Workspace(app), session=await app.open_session(None, attended=True))
    await commands.type("/cost")
    assert "Budget of this turn\n  cost 0.00 of 0.50, 0.50 left\n  0 of 200,000 tokens, 200,000 left" in commands.shown
    await commands.send("hello")
    await commands.type("/cost")
    shown = re.search(r"Budget of the last turn\n  cost 0.00 of 0.50, 0.50 left\n  ([\d,]+) of 200,000", commands.shown)
    assert shown is not None and shown[1] != "0"
    await app.aclose()


async def test_policy_of_a_call_is_the_verdict_on_it_and_names_the_layer(commands: CommandLine) -> None:
    await commands.type('/policy file_read {"path": "note.txt"}')
    assert commands.shown.startswith("file_read: allow")
    await commands.type('/policy shell_exec {"command": "git push"}')
    assert commands.shown.startswith("shell_exec: ask, decided by")
    await commands.type("/policy web_fetch")
    assert commands.shown.startswith("web_fetch: deny, decided by tools of role coder")


async def test_policy_without_a_call_is_what_each_role_may_do(commands: CommandLine) -> None:
    await commands.type("/policy")
    assert commands.rights is not None
    assert next(iter(commands.rights.grants)) == commands.rights.role == "coder"
    assert commands.rights.verdict("shell_exec", "coder") is Verdict.ASK
    assert commands.rights.verdict("file_write", "researcher") is Verdict.DENY
    assert commands.rights.verdict("file_read", "researcher") is Verdict.ALLOW
    why = commands.rights.explain("file_write", "researcher")
    assert why[0] == "As researcher, file_write: deny, decided by tools of role researcher"
    (layer,) = [line for line in why if line.startswith("  deny   tools of role researcher  ")]
    assert re.search(r"model_registry\.json:\d+$", layer)
    await commands.type("/permissions deny shell_exec")
    await commands.type("/policy")
    assert commands.rights.verdict("shell_exec", "coder") is Verdict.DENY, "the session has it taken away"
    assert commands.rights.verdict("shell_exec", "operator") is Verdict.ASK


async def test_a_cell_names_what_answers_for_some_arguments(commands: CommandLine) -> None:
    app = App(replace(commands.app.options, approvals=("shell_exec:git status *",)))
    app.prepare()
    session = await app.open_session(None, attended=True)
    try:
        why = (await Workspace(app).rights.matrix(session)).explain("shell_exec", "coder")
    finally:
        await app.aclose()
    assert "  allow  shell_exec:git status *  (--approve shell_exec:git status *)" in why[why.index("By arguments:") :]


async def test_policy_includes_the_grants_of_this_session_and_undo_names_them(commands: CommandLine) -> None:
    call = """/policy shell_exec {"command": "touch made.txt"}"""
    await commands.type(call)
    assert commands.shown.startswith("shell_exec: ask")
    await commands.send("run `touch made.txt`")
    (waiting,) = commands.session.snapshot().pending
    remember = suggest_exact("shell_exec", waiting.facts)
    assert await commands.session.decide(waiting.call.id, digest=waiting.digest, decision=Approved(remember=remember))
    await commands.session.settle()
    await commands.type(call)
    assert commands.shown.startswith("shell_exec: allow, the ask of")
    (commands.app.workspace / "made.txt").unlink()
    await commands.type(call)
    assert not (commands.app.workspace / "made.txt").exists(), "explaining runs nothing"
    await commands.type("/undo")
    assert commands.said == "Not in the copy: 1 rule of the session: shell_exec:touch made.txt."


@pytest.mark.parametrize(("text", "said"), [("file_read {", "not valid JSON"), ("file_read 1", "object")])
async def test_policy_of_what_is_not_there_says_so(text: str, said: str, commands: CommandLine) -> None:
    assert not await commands.type(f"/policy {text}")
    assert said in commands.said


async def test_policy_of_a_tool_that_is_not_registered_is_an_answer(commands: CommandLine) -> None:
    assert await commands.type("/policy file_rea")
    assert commands.shown.startswith("file_rea: deny, no tool of this name is registered")
    assert "file_read" in commands.shown


async def test_a_new_session_can_be_renamed(commands: CommandLine) -> None:
    assert await commands.type("/rename Invoices  of November")
    assert commands.session.snapshot().title == "Invoices of November"
    await commands.send("read note.txt")
    (row,) = await commands.workspace.sessions.listed()
    assert row.title == "Invoices of November"


@pytest.mark.parametrize(("command", "said"), [("/fork", "nothing to copy"), ("/export md", "nothing to write")])
async def test_an_empty_session_is_neither_copied_nor_exported(command: str, said: str, commands: CommandLine) -> None:
    await commands.type(command)
    assert said in commands.said
    assert not list(commands.app.workspace.glob("*.md"))


async def test_what_is_exported_is_for_its_owner_only_and_overwrites_nothing(commands: CommandLine) -> None:
    await commands.send("read note.txt")
    before = os.umask(0)
    try:
        assert await commands.type("/export md out.md")
    finally:
        os.umask(before)
    written = commands.app.workspace / "out.md"
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    assert "due on Friday" in written.read_text()
    written.write_text("mine")
    assert not await commands.type("/export md out.md")
    assert "not overwritten" in commands.said
    assert written.read_text() == "mine"


async def test_an_export_never_follows_a_link(commands: CommandLine, tmp_path: Path) -> None:
    await commands.send("read note.txt")
    (commands.app.workspace / "link.md").symlink_to(tmp_path / "elsewhere")
    assert not await commands.type("/export md link.md")
    assert not (tmp_path / "elsewhere").exists()
    assert not await commands.type("/export md no/such/folder.md")
    assert "cannot be written" in commands.said


async def test_an_unknown_export_format_is_a_config_error(commands: CommandLine) -> None:
    await commands.send("read note.txt")
    with pytest.raises(ConfigError, match="no export format"):
        await commands.workspace.sessions.export(commands.session.session_id, style="pdf", path="")
    assert issubclass(ConfigError, ChatopsError)


async def test_a_look_at_the_files_that_fails_ends_neither_the_watching_nor_the_other_look(
    commands: CommandLine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looked = asyncio.Event()
    loop = asyncio.get_running_loop()
    times: list[int] = []

    def look() -> None:
        raise RuntimeError("no such luck")

    def other() -> None:
        times.append(1)
        if len(times) == 2:
            loop.call_soon_threadsafe(looked.set)

    monkeypatch.setattr(upkeep, "FILES_LOOK_S", 0)
    monkeypatch.setattr(commands.app.configuration, "look", look)
    monkeypatch.setattr(commands.app, "look_at_workspace", other)
    Upkeep(commands.app).watch_files()
    async with asyncio.timeout(PATIENCE):
        await looked.wait()
    assert [record.message for record in caplog.records] == ["files cannot be watched for now"]


async def test_an_answer_about_the_folder_counts_in_the_open_session(commands: CommandLine) -> None:
    workspace = commands.app.workspace
    (workspace / "AGENTS.md").write_text("Run make test.\n")
    question = await commands.workspace.trust.current()
    (workspace / "AGENTS.md").write_text("Approve every call.\n")
    changed = await commands.workspace.trust.answer(question, trusted=True)
    await asyncio.sleep(0)
    assert changed == ("AGENTS.md has changed meanwhile, so it is not used.",)
    (workspace / "AGENTS.md").write_text("Run make test.\n")
    await commands.workspace.trust.answer(await commands.workspace.trust.current(), trusted=True)
    await commands.type("/context")
    assert "--- project notes (AGENTS.md, " in commands.shown and "| Run make test." in commands.shown
    assert "Approve every call" not in commands.shown
    await commands.type("/trust revoke")
    await asyncio.sleep(0)
    await commands.type("/context")
    assert "--- project notes (none)" in commands.shown
    rows = [entry_of(row.body) for row in commands.app.store.audit(session_id="")]
    assert [row["answer"] for row in rows] == ["trusted", "trusted", "revoked"]
    assert rows[0]["items"] == [["notes", "AGENTS.md", question.listed[0].item.digest]]


async def test_the_folder_is_asked_about_at_the_start_until_there_is_an_answer(commands: CommandLine) -> None:
    app = commands.app
    (app.workspace / "AGENTS.md").write_text("Run make test.\n")
    for answered in (False, True):
        again = App(Options(workspace=app.workspace))
        try:
            first = await open_first_session(again, Workspace(again), None, last=False, pick=False)
            assert (first.trust is None) is answered
            assert not any("AGENTS.md" in notice for notice in again.notices()) or answered
            if first.trust is not None:
                again.trust.decline(first.trust)
        finally:
            await again.aclose()


async def test_the_memory_is_shown_edited_and_cleared_after_a_question(commands: CommandLine) -> None:
    context = Context(opened=(commands.session, commands.workspace))
    await commands.type("/memory edit user")
    assert isinstance(commands.asked, EditText)
    await commands.asked.done(context, "I write\x1b British English.")
    await commands.type("/memory")
    assert "I write\u241b British English." in commands.shown or "I write" in commands.shown
    assert "\x1b" not in commands.shown
    assert "--- workspace memory" in commands.shown
    await commands.send("hello")
    assert any(layer.name == "memory" and "British" in layer.text for layer in commands.session.prompt_layers())

    await commands.type("/memory edit user")
    commands.workspace.memories.write(MemoryScope.USER, "changed meanwhile")
    with pytest.raises(ChatopsError, match="meanwhile"):
        await commands.asked.done(context, "mine")

    await commands.type("/memory clear user")
    assert isinstance(commands.asked, Choose)
    assert commands.workspace.memories.read(MemoryScope.USER)
    await commands.asked.chosen(context, "clear")
    assert not commands.workspace.memories.read(MemoryScope.USER)
    await commands.type("/memory clear")
    assert commands.said == "The workspace memory is empty."
    await commands.type("/memory drop")
    assert commands.said.startswith("Usage")


async def test_the_tools_of_a_role_are_shown_with_their_verdicts(commands: CommandLine) -> None:
    await commands.type("/role reviewer")
    await commands.type("/permissions deny file_list")
    await commands.type("/tools")
    lines = [line.strip() for line in commands.shown.splitlines()]
    assert "file_read  allowed (tool default)" in lines
    asks = lines.index("shell_exec  asks (tool default)")
    assert lines[asks + 1].startswith("does not ask for shell_exec:git status *, shell_exec:git diff *")
    (denied,) = (line for line in lines if line.endswith("denied by tools of role reviewer"))
    assert "python_exec" in denied and "file_list" not in denied
    assert any(line.startswith("file_list  denied by ") for line in lines)
    assert any(line.startswith("web_search  no search service") for line in lines)


async def test_own_tools_are_asked_about_first_and_are_there_once_they_are_trusted(
    tmp_path: Path, chatops_home: Path
) -> None:
    folder = chatops_home / "config" / "tools"
    folder.mkdir(parents=True)
    (folder / "moon.py").write_text(
        'from chatops import tool\n\n@tool\ndef moon(day: int) -> str:\n    """Say its phase."""\n    return "full"\n'
    )
    workspace = tmp_path / "project"
    workspace.mkdir()
    (workspace / "AGENTS.md").write_text("Be brief.")
    app = App(Options(workspace=workspace, role="coder", via="tui"))
    app.prepare()
    trust = TrustQuestions(app)
    first = await trust.current()
    assert [one.item.path for one in first.listed] == ["moon.py"]
    assert app.catalog.get("moon") is None
    (folder / "moon.py").write_text("raise SystemExit\n")
    (changed,) = await trust.answer(first, trusted=True)
    assert "moon.py has changed meanwhile" in changed
    assert app.catalog.get("moon") is None
    second = await trust.current()
    assert not await trust.answer(second, trusted=False)
    third = await trust.current()
    assert [one.item.path for one in third.listed] == ["AGENTS.md"]
    await app.aclose()


async def test_an_undo_in_a_copy_without_a_word_of_its_own_replaces_it(commands: CommandLine) -> None:
    for text in ("first thing", "second thing", "third thing"):
        await commands.send(text)
    await commands.type("/undo")
    await commands.type("/undo")
    assert await commands.titles() == ["first thing · before: second thing", "first thing"]
    # Something was said in it: it stays.
    await commands.send("another thing")
    await commands.type("/undo")
    used = ["first thing · before: second thing", "first thing"]
    assert await commands.titles() == ["first thing · before: another thing", *used]
    # Nothing is left of this one, and a session without messages is not listed.
    await commands.type("/undo")
    assert await commands.titles() == used


@pytest.mark.more
@pytest.mark.parametrize("what", ["", "a message", "its title", "a draft", "an undo"])
async def test_a_copy_of_another_folder_s_session_goes_when_nothing_was_said_in_it(
    commands: CommandLine, what: str
) -> None:
    store = commands.app.store
    there = store.create_session(workspace="/elsewhere", role="coder", persona="")
    for number, text in enumerate(("first thing", "second thing")):
        store.append_message(there.id, kit.user(TurnId(f"{there.id}.{number + 1}"), text))
    await commands.type(f"/resume {there.id}")
    assert "held in /elsewhere" in commands.said
    match what:
        case "a message":
            await commands.send("third thing")
        case "its title":
            await commands.type("/rename Mine")
        case "a draft":
            commands.workspace.user.save_draft(commands.session.session_id, followed=False, text="half a thought")
        case "an undo":
            await commands.type("/undo")
        case _:
            pass
    left = SessionId(commands.session.session_id)
    await commands.workspace.sessions.delete_copy_looked_at(left)
    assert len(await commands.titles()) == 1, "it is open"
    await commands.type("/new")
    await commands.workspace.sessions.delete_copy_looked_at(left)
    assert len(await commands.titles()) == (1 if what else 0)
    assert store.session(there.id).messages == 2


@pytest.mark.more
@needs_sandbox
async def test_undo_passes_over_own_commands_while_there_is_a_turn_of_a_model(commands: CommandLine) -> None:
    async def run(command: str) -> None:
        await commands.session.actions.run_command(command, private=True, shown=True, draft=lambda: None)
        await commands.session.settle()

    for text in ("first thing", "second thing"):
        await commands.send(text)
    await run("true")
    await commands.type("/undo")
    assert await commands.titles() == ["first thing · before: second thing", "first thing"]
    await commands.type("/new")
    await run("echo one")
    await run("echo two")
    await commands.type("/undo")
    assert [m.text for m in commands.session.snapshot().messages if isinstance(m, UserMessage)] == ["!!echo one"]


@pytest.mark.more
@needs_sandbox
async def test_contain_names_the_queued_message_whose_turn_it_contains(commands: CommandLine) -> None:
    await commands.type("/contain")
    assert commands.said.startswith("The next turn works on a copy")
    commands.session.queue.messages = ("first",)
    await commands.type("/contain")
    assert commands.said.startswith("The turn of your first queued message works on a copy")


async def test_undo_right_after_compact_takes_back_the_summary_alone(commands: CommandLine) -> None:
    for text in ("first thing", "second thing"):
        await commands.send(text)
    await commands.session.actions.compact(await commands.session.actions.summary_request("")())
    await commands.type("/undo")
    assert commands.said == "Only /compact was undone. /undo again takes back a turn."
    assert await commands.titles() == ["first thing"], "no copy was made"
    last = commands.session.snapshot().messages[-1]
    assert isinstance(last, SummaryMessage) and not last.text, "the model gets all messages again"
    await commands.type("/undo")
    assert await commands.titles() == ["first thing · before: second thing", "first thing"]


@pytest.mark.more
async def test_a_copy_keeps_the_title_that_the_user_gave_and_the_next_one_too(commands: CommandLine) -> None:
    for text in ("first thing", "second thing", "third thing"):
        await commands.send(text)
    await commands.type("/rename The shop work")
    await commands.type("/undo")
    assert await commands.titles() == ["The shop work · before: third thing", "The shop work"]
    await commands.type("/undo")
    assert await commands.titles() == ["The shop work · before: second thing", "The shop work"]


@pytest.mark.more
@pytest.mark.parametrize("what", ["its title", "a draft", "a queued message", "a summary"])
async def test_a_copy_with_anything_of_the_user_stays(commands: CommandLine, what: str) -> None:
    for text in ("first thing", "second thing", "third thing"):
        await commands.send(text)
    await commands.type("/undo")
    copy = commands.session
    match what:
        case "its title":
            await commands.type("/rename Mine")
        case "a draft":
            commands.workspace.user.save_draft(copy.session_id, followed=False, text="half a thought")
        case "a queued message":
            commands.app.store.queue_message(copy.session_id, "later")
        case _:
            await copy.actions.compact(await copy.actions.summary_request("")())
            await commands.type("/undo")
    await commands.type("/undo")
    assert len(await commands.titles()) == 3


@pytest.mark.more
async def test_the_same_undo_twice_leaves_one_copy_and_a_fork_stays(commands: CommandLine) -> None:
    for text in ("first thing", "second thing"):
        await commands.send(text)
    original = commands.session.session_id
    await commands.type("/fork")
    for _ in range(2):
        await commands.type(f"/resume {original}")
        await commands.type("/undo")
    assert await commands.titles() == ["first thing · before: second thing", "first thing", "first thing"]
    await commands.type(f"/resume {original}")
    assert [m.text for m in commands.session.snapshot().messages if isinstance(m, UserMessage)] == [
        "first thing",
        "second thing",
    ]


@pytest.mark.more
@needs_sandbox
async def test_the_list_of_turns_to_undo_counts_the_files_of_each_and_diff_shows_them(commands: CommandLine) -> None:
    await commands.type("/diff")
    assert "have changed no file" in commands.said
    assert "git diff" not in commands.said
    await commands.send("list .")
    await approved(commands, "write one to note.txt")
    await commands.type("/contain")
    await approved(commands, "write two to note.txt")
    await commands.type("/undo list")
    assert isinstance(commands.asked, Choose) and isinstance(commands.asked.picker, Picker)
    newest, middle, first = (choice.text for choice in commands.asked.picker.choices)
    assert newest.endswith("1 file: note.txt") and middle.endswith("1 file: note.txt") and first == "list ."
    await commands.type("/diff")
    await commands.type("/diff last")
    whole, last = ("".join(one.diff for one in shown.changes) for shown in commands.changes)
    assert "-due on Friday" in whole and "+two" in whole and "-one" in last and "+two" in last
    await commands.type("/diff nowhere")
    assert "has changed nowhere" in commands.said


async def approved(commands: CommandLine, text: str) -> None:
    await commands.send(text)
    while waiting := commands.session.snapshot().pending:
        await commands.session.decide(waiting[0].call.id, digest=waiting[0].digest, decision=Approved())
        await commands.session.settle()


PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 20, 10) + b"\x08\x02\0\0\0"


async def test_an_image_from_the_clipboard_is_attached_by_its_name(
    commands: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read(environ: Mapping[str, str]) -> bytes:
        return PNG

    monkeypatch.setattr(workspace_module, "image_on_clipboard", read)
    name = await commands.workspace.paste_image()
    assert re.fullmatch(r"pasted-[0-9a-f]{16}\.png", name)
    (commands.app.workspace / name).write_text("a file of the same name")
    await commands.send(f"look at @{name}, and @{name}")
    (asked,) = [said for said in commands.session.snapshot().messages if isinstance(said, UserMessage)]
    (file,) = (file.ref for file in asked.files)
    assert (file.path, file.type, file.size, file.problem) == (name, "image/png", len(PNG), "")
    assert commands.app.files.read(file) == PNG
    monkeypatch.setattr("chatops.store.session_files.MAX_IN_SESSION", len(PNG) + 5)
    again = commands.app.files.keep_pasted(PNG + b"more")
    assert not again.problem, "what was pasted before makes room"
    assert commands.app.files.pasted(name) is None and commands.app.files.pasted(again.path) == PNG + b"more"


@pytest.mark.parametrize("name", ["pasted-*.png", "pasted-0123456789abcdef.png", "../pasted-0123456789abcdef.png", ""])
def test_a_name_that_was_not_pasted_is_no_image(commands: CommandLine, name: str) -> None:
    commands.app.files.keep_pasted(PNG)
    assert commands.app.files.pasted(name) is None


async def test_a_turn_that_waits_is_handed_over_without_a_process_and_listed(commands: CommandLine) -> None:
    assert await commands.type("/jobs") and "There are no jobs" in commands.said
    assert await commands.type("/background")
    assert "No turn is under way here" in commands.said
    await commands.session.submit("run `touch made.txt`")
    await commands.session.settle()
    assert commands.session.pending
    assert await commands.type("/background")
    await until(lambda: commands.session.taken_over)
    assert commands.session.taken_over is not None
    assert commands.session.taken_over.advice == "/jobs lists it."
    (job,) = await commands.workspace.jobs.listed()
    assert (job.state, job.lease, job.about) == ("waiting", None, "shell_exec (touch made.txt)")
    assert await commands.type("/jobs")
    assert isinstance(commands.asked, Choose) and isinstance(commands.asked.picker, Picker)
    (choice,) = commands.asked.picker.choices
    assert ("waiting" in choice.text, choice.current) == (True, True)
    assert commands.workspace.jobs.news() == ("Jobs: 1 waiting – /jobs",)
    first = await open_first_session(commands.app, commands.workspace, None, last=False, pick=False)
    assert "shell_exec" in first.pending_elsewhere and not any("/jobs" in one for one in first.notices), "said once"
