"""Parts testable without a screen: text of the dialog, completion, folding, status line, imports."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from chatops.config.trust import ItemState, Listed
from chatops.config.workspace_files import Item, ItemKind
from chatops.domain.decisions import OpenQuestion, ServerQuestion
from chatops.domain.events import AskReason, Denial
from chatops.domain.ids import CallId
from chatops.domain.sandbox import Lack, SandboxNote, SandboxSpec
from chatops.domain.tools import CallFacts, Interruption, ServerFacts
from chatops.engine.workflow.state import AwaitingReview, ReviewReason
from chatops.policy.workflow import OnFail
from chatops.tui.commands import completion
from chatops.tui.commands.completion import (
    WorkspaceFiles,
    complete_command,
    complete_file,
    completed_command,
    query_at,
    workspace_files,
)
from chatops.tui.commands.replies import Context
from chatops.tui.composer import Composer, Folds
from chatops.tui.dialogs.all_pending import AllPendingScreen
from chatops.tui.dialogs.approval import ApprovalScreen
from chatops.tui.dialogs.approval_frame import describe
from chatops.tui.dialogs.approval_keys import AskedCall, call_legend
from chatops.tui.dialogs.approval_list import ApprovalList, CallMark, LastSeenCall
from chatops.tui.dialogs.body import DialogBody
from chatops.tui.dialogs.calls import CallsDialog
from chatops.tui.dialogs.choices import tools_difference
from chatops.tui.dialogs.contained import ContainedScreen
from chatops.tui.dialogs.dialog_keys import AnswerKey, Room
from chatops.tui.dialogs.guarded import GuardedDialog
from chatops.tui.dialogs.key_gate import KeyKind
from chatops.tui.dialogs.review import ReviewScreen
from chatops.tui.dialogs.rows import Row, line, wrap_row
from chatops.tui.dialogs.server_question import ServerQuestionScreen
from chatops.tui.dialogs.trust import MAX_TEXT, TrustScreen
from chatops.tui.status import fit_parts, status_parts
from chatops.tui.theme import PLAIN
from chatops.wiring.all_pending import WaitingCall
from chatops.wiring.rows import RoleRow
from tests.support.cases import for_each
from tests.support.runs import flow, step
from tests.support.waiting import PATIENCE
from tests.tui.app.dialog_scenes import budget
from tests.tui.app.fake_run import FakeRun
from tests.tui.app.fakes import (
    SESSION,
    FakeAllPending,
    FakeSession,
    brought,
    code_facts,
    edit_facts,
    pending_call,
    shell_facts,
    waiting_call,
)
from tests.tui.app.test_all_pending import CHANGES, changes


def exact_text(facts: CallFacts, *, width: int = 40) -> str:
    """Return the exact text of the dialog, without labelled rows, joined from its wrapped lines."""
    description = describe(pending_call(facts=facts), theme=PLAIN)
    lines: list[str] = []
    for row in description.rows:
        if not row.exact or row.label is not None:
            continue
        for part in wrap_row(row, width=width):
            if part.left == "» ":
                lines[-1] += part.text
            else:
                lines.append(part.text)
    return "\n".join(lines)


def test_the_whole_command_is_shown_letter_for_letter_at_any_width() -> None:
    command = "git log --oneline | head -3 && rm -rf build # " + "x" * 300 + "\n  second line\n\nthird"
    for width in (12, 40, 200):
        assert exact_text(shell_facts(command, argv=()), width=width) == command


@given(st.text(st.sampled_from("ab  /é日\u0301\ufe0f\u0e47👩🇩🇪")) | st.text(), st.integers(8, 30))
def test_wrapped_lines_hold_every_character_and_fit(text: str, width: int) -> None:
    shown = line(text)
    parts = wrap_row(Row(text=shown, exact=True, lead=""), width=width)
    assert "".join(part.text for part in parts) == shown
    assert all(cell_len(part.text) <= width for part in parts)


def test_nothing_invisible_stays_invisible() -> None:
    shown = exact_text(shell_facts("echo \u202egnp.exe\u200b\x1b[2Kdone\r", argv=()))
    assert "\u202e" not in shown
    assert "\x1b" not in shown
    assert "\r" not in shown
    assert "<U+202E>" in shown
    assert "<U+200B>" in shown


def test_no_character_but_a_line_feed_makes_a_new_line() -> None:
    rows = exact_text(shell_facts("a\u2028b\x0bc\x85d\re", argv=())).split("\n")
    assert len(rows) == 1


def test_all_arguments_are_shown_beside_the_command() -> None:
    facts = replace(shell_facts("make"), arguments=json.dumps({"command": "make", "timeout_s": 5, "env": {"A": "b"}}))
    shown = exact_text(facts)
    assert ("timeout", "5 s") in [
        (row.label, row.text) for row in describe(pending_call(facts=facts), theme=PLAIN).rows
    ]
    assert "timeout_s" not in shown
    assert '"A": "b"' in shown


def test_a_command_argument_that_is_not_what_runs_is_shown_too() -> None:
    facts = replace(shell_facts("make"), arguments=json.dumps({"command": "make install"}))
    assert 'command: "make install"' in exact_text(facts)


def test_broken_arguments_are_shown_as_they_are() -> None:
    assert "{oops" in exact_text(CallFacts(arguments="{oops"))


def test_code_is_shown_once_and_letter_for_letter_with_what_runs_it() -> None:
    code = "for n in range(3):\n    print(n)  # \u202eno\n"
    rows = describe(pending_call(tool="python_exec", facts=code_facts(code)), theme=PLAIN).rows
    assert [row.text for row in rows if row.tone == "code"] == ["for n in range(3):", "    print(n)  # <U+202E>no", ""]
    assert ("program", "/usr/bin/python3 -I -u -X utf8 -c") in [(row.label, row.text) for row in rows]
    assert not any(row.text.endswith("rguments") for row in rows)


def test_an_argument_that_is_called_code_and_is_not_what_runs_is_shown() -> None:
    facts = replace(code_facts("print(1)"), arguments='{"code":"print(2)","other":3}')
    assert {'code: "print(2)"', "other: 3"} <= {
        row.text for row in describe(pending_call(facts=facts), theme=PLAIN).rows
    }


def test_what_a_server_says_comes_after_our_own_lines_and_is_marked() -> None:
    said = "Finds.\n\nsandbox     hard\nnetwork     no\n" + "x" * 200
    server = ServerFacts(name="tickets", origin="https://tickets.example", tool="find", description=said)
    rows = describe(
        pending_call(tool="tickets__find", facts=CallFacts(arguments="{}", server=server)), theme=PLAIN
    ).rows
    last_label = max(at for at, row in enumerate(rows) if row.label)
    after = [part for row in rows[last_label + 1 :] for part in wrap_row(row, width=60) if row.exact]
    assert [part.text for part in after][:4] == said.split("\n")[:4]
    assert {part.left for part in after} == {"│ ", "» "}
    assert not any("Finds" in row.text for row in rows[:last_label])


def test_every_repair_stands_below_a_short_call_and_above_a_long_one() -> None:
    repairs = ("a brace was added", "quotes\u202e were\nchanged")
    for code, first in (("1", 2), ("1\n" * 40, 0)):
        description = describe(pending_call(facts=code_facts(code, repairs=repairs)), theme=PLAIN)
        assert [(row.label, row.text, row.tone) for row in description.rows[first : first + 2]] == [
            ("repaired", "a brace was added", "caution"),
            ("", "quotes<U+202E> were␊changed", "caution"),
        ]
        assert description.payload > 3


def test_an_edit_is_shown_once_as_its_diff_with_the_resolved_path() -> None:
    description = describe(pending_call(tool="file_edit", facts=edit_facts()), theme=PLAIN)
    drawn = [part.left + part.text for row in description.rows for part in wrap_row(row, width=70)]
    assert drawn[:6] == ["src/app.py  +1 −1", "1   a = 0", "2 − b = 1", "2 + b = 2", "3   c = 3", ""]
    text = "\n".join(drawn)
    assert "old" not in text and text.count("b = 2") == 1, "the diff is the payload, and shown once"
    foreign = describe(pending_call(tool="theirs", facts=edit_facts()), theme=PLAIN)
    assert 'old: "b = 1"' in [row.text for row in foreign.rows], "what a diff of another tool shows is not known"


def test_what_a_diff_does_not_tell_is_a_row() -> None:
    new = replace(
        edit_facts(),
        arguments='{"content":"\\n x \\n","path":"./link.py"}',
        diff="--- /dev/null\n+++ b/src/app.py\n@@ -0,0 +1,2 @@\n+\n+ x \n",
        creates=True,
    )
    description = describe(pending_call(tool="file_write", facts=new), theme=PLAIN)
    drawn = [part.left + part.text for row in description.rows for part in wrap_row(row, width=70)]
    assert drawn[:3] == ["src/app.py  new file  +2", "1 + ", "2 +  x·"]
    assert 'path: "./link.py"' in "\n".join(drawn), "the path given is not the one that is written"


def test_a_blank_context_line_of_a_diff_is_blank() -> None:
    facts = replace(edit_facts(), diff="--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n \n-a\n+b\n   \n")
    rows = describe(pending_call(tool="file_edit", facts=facts), theme=PLAIN).rows
    drawn = [part.left + part.text for row in rows for part in wrap_row(row, width=70)]
    assert drawn[1:5] == ["1   ", "2 − a", "2 + b", "3   ··"]


def test_both_sides_of_a_diff_hold_every_line() -> None:
    diff = "--- a/x\n+++ b/x\n@@ -4,3 +4,4 @@\n same\n-old one\n+new one\n+" + "long " * 9 + "\n end\n"
    facts = replace(edit_facts(), diff=diff)
    rows = describe(pending_call(tool="file_edit", facts=facts), theme=PLAIN, side_by_side=True).rows
    drawn = [
        (part.left + part.text, part.beside.left + part.beside.text)
        for row in rows
        for part in wrap_row(row, width=53)
        if part.beside is not None
    ]
    assert drawn == [
        ("4   same", "4   same"),
        ("5 − old one", "5 + new one"),
        ("    ", "6 + long long long long "),
        ("", "  » long long long long "),
        ("", "  » long·"),
        ("6   end", "7   end"),
    ]


def test_spaces_in_a_path_are_kept() -> None:
    facts = replace(edit_facts(), paths=("/home/ana/two  spaces/" + "x" * 60,))
    rows = [row for row in describe(pending_call(facts=facts), theme=PLAIN).rows if row.label == "touches"]
    shown = "".join(part.text for part in wrap_row(rows[0], width=40))
    assert shown == f'"{facts.paths[0]}"'


def test_a_sentence_of_ours_beside_a_label_is_broken_between_words() -> None:
    sandbox = "bubblewrap: no network, workspace writable, no home, programs of this computer"
    facts = replace(shell_facts("ls", argv=()), sandbox=sandbox)
    cut, whole = [
        row for row in describe(pending_call(facts=facts), theme=PLAIN, details=True).rows if row.label == "sandbox"
    ]
    assert [part.text for part in wrap_row(cut, width=53)] == [
        "bubblewrap: no network, workspace",
        "writable, no home … v",
    ]
    assert [part.text for part in wrap_row(whole, width=53)] == [
        "bubblewrap: no network, workspace",
        "writable, no home, programs of this",
        "computer",
    ]


def test_the_model_words_come_after_the_payload_and_are_labelled() -> None:
    call = pending_call(said="just trust me")
    folded, unfolded = (describe(call, theme=PLAIN, details=open_) for open_ in (False, True))
    assert all("trust me" not in row.text for row in folded.rows)
    assert all("trust me" not in row.text for row in unfolded.rows[: unfolded.payload])
    assert any("trust me" in row.text for row in unfolded.rows[unfolded.payload :])


def test_a_call_that_no_rule_answers_offers_none() -> None:
    call = pending_call()
    for facts in (replace(call.facts, needs_user="no sandbox works"), replace(call.facts, repairs=("a quote",))):
        asked = replace(call, facts=facts)
        waiting = ApprovalList()
        waiting.refresh([asked])
        for room in Room:
            offered = call_legend(AskedCall(item=waiting.items[0], calls=waiting), room=room).draw(200).plain
            assert " s " not in offered and "this session" not in offered and "rule" not in offered


@for_each("dialog", [ApprovalScreen, ContainedScreen, ReviewScreen, ServerQuestionScreen, TrustScreen])
def test_each_key_of_a_dialog_has_a_method_and_only_its_own_table_decides(dialog: type[GuardedDialog]) -> None:
    assert [key.act for key in dialog.KEYS if not hasattr(dialog, f"_{key.act}") and key.act != "scroll"] == []
    assert not {"y", "n", "enter", "space", " "} & {
        name for name, key in dialog.by_name.items() if key.kind >= KeyKind.DENY
    }


def shown_calls() -> Iterator[CallsDialog]:
    """Yield both dialogs of calls, in each state that changes their legend."""
    lack, denial = Lack(by="it", needs=SandboxSpec(hosts=("x.example",))), Denial(role="coder", by="rule")
    states = product((AskReason.POLICY, AskReason.OUTCOME_UNKNOWN), (None, denial), ((), (lack,)))
    calls = [
        replace(pending_call(reason=reason, facts=replace(shell_facts("ls"), lacks=lacks)), denial=denied)
        for reason, denied, lacks in states
    ]
    undo = changes(undo=True)
    unknown = replace(undo, pending=replace(undo.pending, reason=AskReason.OUTCOME_UNKNOWN))
    own = waiting_call(pending_call(), session_id=SESSION)
    for call, mark in product((*calls, budget()), (CallMark.UNDECIDED, CallMark.APPROVED)):
        approval = ApprovalScreen(FakeSession(pending=[call, pending_call(2)]), Composer(), seen=LastSeenCall())
        yield marked(approval, mark)
        yield marked(listed(waiting_call(call)), mark)
    yield from (marked(listed(call), CallMark.UNDECIDED) for call in (changes(), undo, unknown, own))


def listed(call: WaitingCall) -> AllPendingScreen:
    at = FakeAllPending(call)
    where = {"current": SESSION, "workspace": call.folder, "open_session": print, "unticked": set()}
    return AllPendingScreen(at, at.calls, Composer(), **where)  # type: ignore[arg-type]


def marked(dialog: CallsDialog, mark: CallMark) -> CallsDialog:
    dialog._calls.refresh(dialog.waiting())
    dialog._calls.items[0].mark = mark
    return dialog


def shown_questions() -> Iterator[GuardedDialog]:
    """Yield the other dialogs, in each state that changes their legend."""
    denial = Denial(role="coder", by="rule")
    reasons = (AskReason.POLICY, AskReason.OUTCOME_UNKNOWN)
    for waiting, reason, denied in product((changes(), changes(undo=True)), reasons, (None, denial)):
        contained = ContainedScreen(FakeSession(), Composer(), unticked=set())
        contained._pending = replace(waiting.pending, reason=reason, denial=denied)
        contained._review = CHANGES
        yield contained
    for kind, state, size in product((None, ItemKind.OWN_TOOL), (ItemState.NEW, ItemState.TRUSTED), (9, MAX_TEXT + 1)):
        item = Item(kind=kind or ItemKind.NOTES, path="a", size=size, digest="00" * 32, data=b"x" * size)
        yield TrustScreen(replace(brought(), listed=(Listed(item=item, state=state),)), cast(Any, None), Composer())
    for why, skip in product(ReviewReason, (True, False)):
        run = FakeRun(flow(step("only", on_fail=OnFail.ASK, may_skip=skip)))
        yield ReviewScreen(run, AwaitingReview(step=0, attempt=1, reason=why), Composer())
    for schema, url in (("", ""), ('{"properties":{"a":{"type":"string"}}}', ""), ("", "https://x.example")):
        asked = ServerQuestion(server="tides", message="Hello", id="q", schema=schema, url=url)
        open_ = OpenQuestion(call_id=CallId("s.1.1.1"), tool="tides__book", question=asked)
        yield ServerQuestionScreen(cast(Any, None), open_, Composer(), kept={})


def test_a_key_acts_if_a_legend_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DialogBody, "sides_label", "side by side")
    monkeypatch.setattr(DialogBody, "full_label", "full screen")
    for dialog, room, unread in product((*shown_calls(), *shown_questions()), Room, ("", "read on first")):
        monkeypatch.setattr(GuardedDialog, "room", room)
        named = [hint.key for hints in dialog.legend(unread).lines for hint in hints]
        refused = {key: why for key in named if (why := dialog.why_not(dialog.by_name[key]))}
        assert not refused, (dialog, room)
        if room is Room.USUAL and not unread and not isinstance(dialog, CallsDialog):
            answers = {key.names for key in dialog.KEYS if isinstance(key, AnswerKey)}
            assert {name for name in answers if not dialog.why_not(dialog.by_name[name])} <= {*named}, dialog


def test_an_unknown_outcome_grants_nothing_and_says_what_may_have_happened() -> None:
    call = pending_call(reason=AskReason.OUTCOME_UNKNOWN, why="the app stopped")
    known = Interruption(call_id=call.call.id, attempt=1, started_at=1e9, output="one\n\x1b[2Jtwo\n")
    description = describe(replace(call, interruption=known), theme=PLAIN)
    text = "\n".join(f"{row.label or ''} {row.text}" for row in description.rows[: description.payload])
    assert "may have taken effect" in text
    assert "asks because the app stopped" in text
    assert "started 2001-09-09 " in text
    assert "Its output until then\n one\n ␛[2Jtwo" in text, "it has to be on screen before an answer"
    nothing = describe(replace(call, interruption=replace(known, output="")), theme=PLAIN)
    assert [row.text for row in nothing.rows[-2:]] == ["Its output until then", "none was kept"]


def test_folds_stand_for_exactly_what_was_pasted() -> None:
    folds = Folds()
    short, long = "a\nb", "z\n" * 11
    assert folds.fold(short) == short
    item, second = folds.fold(long), folds.fold("y" * 2_001)
    assert item == "[pasted 11 lines, 22 bytes #1]"
    assert folds.unfold(f"{item} and {second}") == f"{long} and {'y' * 2_001}"
    folds.clear()
    assert folds.unfold(item) == item


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_line_end_at_the_end_of_a_paste_is_no_line_of_its_own(end: str) -> None:
    assert Folds().fold("\n".join(["word"] * 500) + end).startswith("[pasted 500 lines, ")
    assert Folds().fold("\n".join(["word"] * 10) + end).startswith("word\n"), "ten lines are not folded"


def test_completion_knows_commands_and_files() -> None:
    query = query_at("/ro", row=0, column=3)
    assert query is not None
    assert complete_command(query.word)[0].insert == "/role "
    assert query_at("/rename x", row=0, column=9) is None
    assert query_at("see @src/a", row=3, column=10) is not None
    assert query_at("mail a@b", row=0, column=8) is None
    found = complete_file("app", ["docs/apple/readme.md", "src/app.py", "zebra"])
    assert found[0].insert == "@src/app.py "
    assert all("zebra" not in completion.text for completion in found)
    assert complete_file("", ["a b"])[0].insert == '@"a b" '
    assert [one.text for one in complete_file("src", ["src/", "src/app.py"])] == ["src/", "src/app.py"]
    assert complete_file("src/", ["src/app.py", "src/"])[0].text == "src/"


def test_files_leaves_out_hidden_ignored_and_linked_ones(tmp_path: Path) -> None:
    for name in ("src/app.py", ".git/config", "node_modules/x.js", "out.log", "keep.txt", "bad\nname"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / ".gitignore").write_text("*.log\n# comment\n!keep.txt\n")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert workspace_files(tmp_path) == WorkspaceFiles(paths=("keep.txt", "src/", "src/app.py"))
    assert workspace_files(tmp_path / "missing") == WorkspaceFiles()
    assert workspace_files(tmp_path, below="src/").paths == ("src/app.py",)
    assert workspace_files(tmp_path, below="src/../../") == WorkspaceFiles()


def test_files_beyond_the_limit_are_said_and_found_below_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "MAX_FILES", 10)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        for number in range(6):
            (tmp_path / folder / f"{number}.txt").touch()
    found = workspace_files(tmp_path, seconds=PATIENCE)
    assert len(found.paths) == 10
    assert not found.complete
    in_b = workspace_files(tmp_path, below="b/", seconds=PATIENCE)
    assert in_b.complete
    assert len(in_b.paths) == 6


def test_the_difference_names_gains_and_losses() -> None:
    before = RoleRow(name="a", model="m", tools=("file_read", "shell_exec"))
    after = RoleRow(name="b", model="m", tools=("file_read", "web_search"))
    assert tools_difference(before, after) == "+ web_search − shell_exec"
    assert tools_difference(after, after) == "the same tools"


async def test_sandbox_and_contain_complete_their_arguments() -> None:
    context = cast(Context, None)
    for before, expected in (
        (("sandbox",), ["git", "network", "require", "hosts", "read", "write", "env", "reset"]),
        (("sandbox", "network"), ["on", "off"]),
        (("sandbox", "hosts"), []),
        (("contain",), ["off", "undo"]),
        (("contain", "off"), []),
    ):
        command = completed_command(before)
        assert command is not None
        assert [one.text for one in await command.complete(context, before)] == expected


def test_the_status_line_keeps_role_and_waiting_calls_when_narrow() -> None:
    session = FakeSession(pending=[pending_call()])
    session.change(is_demo=True, model_label="demo")
    parts = status_parts(session.now, sandbox=SandboxNote(off=False, text="bubblewrap"), seconds=None)
    assert any("DEMO" in part.text for part in parts)
    narrow = [part.text for part in fit_parts(parts, width=24)]
    assert narrow[0] == "coder"
    assert "? 1 pending" in narrow
    assert fit_parts(parts, width=500) == parts


def test_the_app_starts_without_anything_heavy() -> None:
    """Read in a fresh process: the first paint waits for none of these."""
    libraries = ("openai", "pydantic", "httpx2", "rich.markdown", "pygments.lexers", "jsonschema", "sqlite3", "yaml")
    ours = (
        "runtime.session",
        "engine.turn",
        "store.base",
        "policy.grant",
        "domain.events",
        "runtime.view",
        "tui.transcript.blocks",
        "tui.commands.table",
        "tui.transcript.projector",
        "tui.dialogs.approval",
    )
    heavy = (*libraries, *(f"chatops.{name}" for name in ours))
    code = f"import sys, chatops.tui.app; print([name for name in {heavy!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
