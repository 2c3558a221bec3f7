"""Editing a pending call: in a form with a field for each argument, or in the user's own editor."""

import json
import math
import os
import shlex
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatops.config.prompt_files import MemoryScope
from chatops.domain.decisions import Approved, Edited
from chatops.domain.events import ApprovalRequested, AskReason
from chatops.domain.tools import CallFacts
from chatops.tools.files import file_edit
from chatops.tui.dialogs.arguments import ArgumentsForm
from chatops.tui.dialogs.fields import FieldKind, fields_of, with_values
from tests.support.properties import examples
from tests.tui.app.fakes import ROUND, FakeSession, FakeWorkspace, pending_call, shell_facts
from tests.tui.app.support_app import Stage, stage

SCHEMA = {
    "required": ["path", "mode"],
    "properties": {
        "path": {"type": "string", "description": "Which file."},
        "content": {"type": "string"},
        "mode": {"enum": ["append", "replace"]},
        "times": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
        "ratio": {"type": "number"},
        "force": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
}
ARGUMENTS = {"path": "a.txt", "content": "one\ntwo\n", "mode": "append", "tags": ["x"], "extra": 1}
KINDS = {
    "path": FieldKind.LINE,
    "content": FieldKind.LONG,
    "mode": FieldKind.CHOICE,
    "times": FieldKind.INTEGER,
    "ratio": FieldKind.NUMBER,
    "force": FieldKind.CHOICE,
    "tags": FieldKind.JSON,
    "extra": FieldKind.INTEGER,
}


async def asked(running: Stage, **more: object) -> None:
    running.session.ask(replace(pending_call(), **more))  # type: ignore[arg-type]
    await running.settle()
    await running.press("down")


def sent(running: Stage) -> list[dict[str, object]]:
    return [json.loads(one.decision.arguments) for one in running.session.taken if isinstance(one.decision, Edited)]


class WithSchema(FakeSession):
    """A session whose pending tool has a schema."""

    def rule_offer(self, pending):  # type: ignore[no-untyped-def]
        offer = super().rule_offer(pending)
        spec = replace(offer.grant.tools[0], schema=json.dumps(SCHEMA))
        return replace(offer, grant=replace(offer.grant, tools=(spec,)))


def test_each_argument_gets_the_field_that_its_schema_asks_for() -> None:
    fields = fields_of(json.dumps(SCHEMA), json.dumps(ARGUMENTS))
    assert {field.name: field.kind for field in fields} == KINDS
    assert [field.name for field in fields if field.required] == ["path", "mode"]
    by_name = {field.name: field for field in fields}
    assert by_name["times"].parsed("3") == 3
    assert by_name["ratio"].parsed("0.5") == 0.5
    for name, text in (("times", "three"), ("ratio", "nan"), ("ratio", "x"), ("tags", "[1"), ("tags", '{"a":1,"a":2}')):
        with pytest.raises(ValueError, match=r"\."):
            by_name[name].parsed(text)


SCALARS = st.none() | st.booleans() | st.integers() | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


@settings(max_examples=examples(40))
@given(st.dictionaries(st.text(max_size=5), VALUES), VALUES)
def test_fields_that_nobody_touches_change_nothing_whatever_the_schema_says(
    arguments: dict[str, object], schema: object
) -> None:
    text = json.dumps(arguments)
    for wanted in (json.dumps(schema), json.dumps({"properties": schema}), json.dumps({"properties": {"": schema}})):
        fields = fields_of(wanted, text)
        assert {field.name for field in fields} >= arguments.keys()
        values = {field.name: field.parsed(field.text) for field in fields}
        assert json.loads(with_values(text, values)) == arguments


@pytest.mark.more
def test_required_arguments_come_in_the_order_of_the_tool() -> None:
    given = {"new": "b", "old": "a", "path": "x", "also": 1}
    fields = fields_of(file_edit.spec.schema, json.dumps(given))
    assert [one.name for one in fields] == ["path", "old", "new", "also"]


async def test_an_edit_is_one_field_per_argument_and_asked_again() -> None:
    facts = CallFacts(arguments=json.dumps(ARGUMENTS))
    async with stage(WithSchema(), size=(100, 40)) as running:
        await asked(running, facts=facts)
        await running.press("e")
        for label in ("path  Which file.", "mode", "(x) append   ( ) replace", "times  whole number  optional"):
            assert label in running.text, running.text
        assert "(x) not given   ( ) true   ( ) false" in running.text
        assert "{" not in running.text, "no JSON but where there is no other way"
        await running.fill(times="soon", tags="[")
        assert "A whole number is needed" in running.text and "is not valid JSON" in running.text
        assert sent(running) == []
        await running.fill("tab", times="2", tags='["y"]')
        for field in ("1", "5"):
            running.app.screen.query_one(f"#field-{field}").focus()
            await running.press("right")
        await running.press("ctrl+s")
        assert sent(running) == [{**ARGUMENTS, "mode": "replace", "times": 2, "tags": ["y"], "force": True}]
        again = pending_call(facts=shell_facts("git status -s"), reason=AskReason.EDITED, digest="d-2")
        running.session.change(pending=(again,))
        running.session.publish(ApprovalRequested(id=again.call.id, parent_id=ROUND, pending=again))
        await running.settle()
        assert "git status -s" in running.text
        await running.press("a")
        assert (running.session.taken[1].digest, running.session.taken[1].decision) == ("d-2", Approved())


async def test_an_edited_call_among_others_stays_on_screen_until_it_is_asked_again() -> None:
    other = pending_call(2, facts=shell_facts("git push"))
    async with stage() as running:
        running.session.ask(pending_call(1), other)
        await running.settle()
        await running.press("down", "e")
        await running.fill(command="ls")
        assert "> 1  edited, checking" in running.text, running.text
        await running.press("a")
        assert len(running.session.taken) == 1, "a key answers nothing while the call is checked"
        again = pending_call(1, facts=shell_facts("ls"), reason=AskReason.EDITED, digest="d-2")
        running.session.change(pending=(again, other))
        running.session.publish(ApprovalRequested(id=again.call.id, parent_id=ROUND, pending=again))
        await running.settle()
        assert "> 1  undecided" in running.text
        assert "The arguments were edited" in running.text and "has changed" not in running.text
        await running.press("tab")
        changed = pending_call(1, facts=shell_facts("ls -a"), reason=AskReason.CHANGED, digest="d-3")
        running.session.change(pending=(changed, other))
        running.session.publish(ApprovalRequested(id=changed.call.id, parent_id=ROUND, pending=changed))
        await running.settle()
        assert "Another call has changed since it was shown." in running.text
        await running.type_fast("a")
        assert len(running.session.taken) == 1, "a key pressed as something changes decides nothing"


async def test_what_the_tool_refuses_stands_at_its_field_and_what_was_typed_stays() -> None:
    async with stage() as running:
        await asked(running)
        await running.press("e")
        await running.fill(command="broken\u202e one")
        assert "is broken" in running.text and sent(running) == []
        await running.press("escape")
        assert running.dialog_is_open
        await running.press("e")
        assert "broken\ufffd one" in running.text, "leaving the form loses nothing"
        await running.fill(command="git log")
        assert sent(running) == [{"command": "git log"}]


def field_with_cursor(running: Stage) -> str:
    form = running.app.screen
    assert isinstance(form, ArgumentsForm) and form.focused is not None and form.focused.id is not None
    return form._fields[int(form.focused.id.removeprefix("field-"))].name


@pytest.mark.more
async def test_enter_up_and_down_go_from_field_to_field() -> None:
    async with stage(WithSchema(), size=(100, 44)) as running:
        await asked(running, facts=CallFacts(arguments=json.dumps(ARGUMENTS)))
        await running.press("e")
        seen = [field_with_cursor(running)]
        for key in ("down", "enter", "enter", "down", "down", "down", "up"):
            await running.press(key)
            seen.append(field_with_cursor(running))
        # Neither Down nor Enter changes a choice, and Enter is a new line in the text.
        assert seen == ["path", "mode", "content", "content", "content", "content", "times", "content"], seen
        assert "(x) append" in running.text
        for _ in range(6):
            await running.press("up")
        assert field_with_cursor(running) == "path"
        for _ in range(12):
            await running.press("down")
        assert field_with_cursor(running) == "extra"
        await running.press("enter")
        assert field_with_cursor(running) == "extra"
        assert "This is the last field. ctrl+s checks them." in running.text
        await running.press("3")
        assert "This is the last field" not in running.text
        await running.press("ctrl+s")
        assert sent(running) == [{**ARGUMENTS, "content": "\none\ntwo\n", "extra": 13}]


@pytest.mark.more
async def test_an_earlier_edit_is_named_and_ctrl_r_changes_to_the_original_and_back() -> None:
    async with stage(WithSchema(), size=(100, 44)) as running:
        await asked(running, facts=CallFacts(arguments=json.dumps(ARGUMENTS)))
        await running.press("e")
        assert "ctrl+r" not in running.text and "earlier edit" not in running.text
        await running.type_fast("end", *"zz", "down", "right", "escape")
        await running.settle()
        await running.press("e")
        assert "Edit the arguments of shell_exec · your earlier edit" in running.text, running.text
        assert "a.txtzz" in running.text and "(x) replace" in running.text and "ctrl+r the original" in running.text
        await running.press("ctrl+r")
        assert "a.txtzz" not in running.text and "(x) append" in running.text
        assert "· your earlier edit" not in running.text and "ctrl+r your earlier edit" in running.text
        await running.press("ctrl+r")
        assert "a.txtzz" in running.text and "· your earlier edit" in running.text
        await running.press("ctrl+r", "escape", "e")
        assert "a.txtzz" not in running.text and "ctrl+r" not in running.text


@pytest.mark.more
async def test_the_field_with_the_cursor_and_the_keys_are_on_a_small_screen() -> None:
    names = ["path", "mode", "content", "times", "ratio", "force", "tags", "extra"]
    async with stage(WithSchema(), size=(30, 8)) as running:
        await asked(running, facts=CallFacts(arguments=json.dumps({**ARGUMENTS, "content": "one\n" * 30})))
        await running.press("e")
        for name in [*names, names[0]]:
            lines = running.text.splitlines()
            marked = next((at for at, row in enumerate(lines) if row.startswith("❯")), 0)
            assert lines[marked].startswith(f"❯ {name}") and "ctrl+s" not in lines[marked + 1], running.text
            assert "Esc back" in lines[-1], running.text
            await running.press("tab")


@pytest.mark.more
async def test_an_unchanged_form_sends_nothing() -> None:
    content = "a\r\nb\nc\x00\u202e"
    async with stage() as running:
        await asked(running, facts=CallFacts(arguments=json.dumps({"content": content, "path": "x"})))
        await running.press("e")
        await running.fill()
        assert isinstance(running.app.screen, ArgumentsForm) and "Nothing is changed" in running.text
        await running.fill(path="y")
        assert sent(running) == [{"content": content, "path": "y"}], "a field that was not touched is what it was"


def use_editor(running: Stage, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let the app give its terminal to a program that runs `script` with the file in `path`."""

    @contextmanager
    def suspend():  # type: ignore[no-untyped-def]
        yield

    monkeypatch.setattr(running.app, "suspend", suspend)
    code = f"import sys, pathlib; path = pathlib.Path(sys.argv[1]); {script}"
    monkeypatch.setenv("VISUAL", shlex.join([sys.executable, "-c", code]))


async def outside(running: Stage) -> None:
    await running.press("E")
    await running.app.workers.wait_for_complete()
    await running.settle()


async def test_the_editor_gets_the_text_and_not_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with stage() as running:
        await asked(running, facts=shell_facts('echo "a\\tb"'))
        seen = tmp_path / "seen"
        use_editor(
            running,
            monkeypatch,
            f"pathlib.Path({str(seen)!r}).write_text(path.suffix + path.read_text()); path.write_text('ls\\n')",
        )
        await outside(running)
        assert seen.read_text() == '.shecho "a\\tb"'
        assert sent(running) == [{"command": "ls"}], "the line end that editors add is not part of it"


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("path.write_text('ls'); sys.exit(3)", "exit code 3. Your text is in"),
        ("sys.exit(3)", "exit code 3."),
        ("path.write_bytes(b'\\xff\\xfe')", "is not UTF-8 text. Your text is in"),
        ("path.unlink()", "No such file or directory. It left no file."),
        ("path.write_bytes(b'a' * 5_000_000)", "larger than 4,000,000 bytes. Your text is in"),
        ("pass", "returned at once. Use a command that waits, as code --wait does. What it saves is in"),
    ],
)
async def test_an_editor_that_fails_changes_nothing_and_loses_nothing(
    script: str, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("chatops.tui.dialogs.external_editor.MIN_EDITING_S", math.inf)
    async with stage(size=(110, 40)) as running:
        await asked(running)
        use_editor(running, monkeypatch, script)
        await outside(running)
        assert said in " ".join(running.text.replace("│", "").split())
        assert sent(running) == [] and running.dialog_is_open
        assert bool(os.listdir(tmp_path)) == any(one in said for one in ("Your text", "it saves"))


async def test_an_editor_that_the_user_closes_leaves_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("chatops.tui.dialogs.external_editor.MIN_EDITING_S", 0.0)
    async with stage() as running:
        await asked(running)
        use_editor(running, monkeypatch, "pass")
        await outside(running)
        assert "Nothing was changed in the editor." in running.text
    assert not os.listdir(tmp_path)


@pytest.mark.more
@pytest.mark.parametrize("climbs", [False, True])
async def test_the_name_of_an_argument_leads_the_editor_to_no_other_folder(
    climbs: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The model has chosen it, and the folder of the file is removed afterwards."""
    place, mine = tmp_path / "tmp", tmp_path / "mine"
    place.mkdir()
    mine.mkdir()
    (mine / "notes.txt").write_text("my notes")
    monkeypatch.setattr("tempfile.tempdir", str(place))
    monkeypatch.setattr("chatops.tui.dialogs.external_editor.MIN_EDITING_S", 0.0)
    name = "../../mine/x" if climbs else f"{mine}/notes"
    async with stage() as running:
        await asked(running, facts=CallFacts(arguments=json.dumps({name: "y" * 99})))
        use_editor(running, monkeypatch, "pass")
        await outside(running)
        assert "Nothing was changed in the editor." in running.text
    assert (mine / "notes.txt").read_text() == "my notes"


async def test_a_text_that_the_tool_refuses_comes_back_in_the_form(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage() as running:
        await asked(running)
        use_editor(running, monkeypatch, "path.write_text('broken again')")
        await outside(running)
        assert isinstance(running.app.screen, ArgumentsForm)
        assert "broken again" in running.text and "is broken" in running.text
        assert sent(running) == []


@pytest.mark.more
async def test_without_an_editor_or_a_terminal_to_give_the_dialog_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage() as running:
        await asked(running)
        await outside(running)
        assert "The terminal cannot be given to an editor here." in running.text
        monkeypatch.setenv("VISUAL", "nonexistent-editor 'x")
        await outside(running)
        assert "$VISUAL cannot be read" in running.text


async def test_the_editor_for_a_memory_saves_it_and_loses_nothing_that_cannot_be_saved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "edited").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "edited"))
    workspace = FakeWorkspace(folder=tmp_path)
    async with stage(workspace=workspace, size=(110, 40)) as running:
        use_editor(running, monkeypatch, "path.write_text('mine')")
        running.app.chat.run_command("/memory edit user")
        await running.app.workers.wait_for_complete()
        assert workspace.memories.read(MemoryScope.USER) == "mine"
        assert os.listdir(tmp_path / "edited") == []
        memory = str(workspace.memories.path(MemoryScope.USER))
        both = f"path.write_text('lost?'); pathlib.Path({memory!r}).write_text('theirs')"
        for script in ("path.write_text('lost?'); sys.exit(3)", both):
            use_editor(running, monkeypatch, script)
            running.app.chat.run_command("/memory edit user")
            await running.app.workers.wait_for_complete()
            await running.settle()
            assert "Your text is in" in " ".join(running.text.split())
        texts = [file.read_text() for file in (tmp_path / "edited").rglob("*.md")]
        assert texts == ["lost?", "lost?"]
