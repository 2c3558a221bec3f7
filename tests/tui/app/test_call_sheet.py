"""Every surface shows the same facts of a pending call, and offers the same.

They are the dialog, ``approvals show`` and its JSON, and the page.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import fields, replace
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatops.domain.canonical import JsonValue
from chatops.domain.decisions import Approved, PathPattern, RuleScope
from chatops.domain.events import AskReason, Denial, PendingCall, StepGate
from chatops.domain.sandbox import Lack, SandboxSpec
from chatops.domain.sanitize import reveal, sanitize
from chatops.domain.tools import CallFacts, DelegationFacts, Interruption, Processes, ServerFacts
from chatops.headless.pending import describe as printed
from chatops.headless.pending import describe_json, next_steps
from chatops.headless.screen import Screen
from chatops.runtime.call_facts import Form, Weight
from chatops.runtime.call_sheet import CallSheet, call_sheet
from chatops.serve.desk import ShownCall
from chatops.serve.logins import Login
from chatops.serve.pages import call_page
from chatops.serve.pages import render_page as draw
from chatops.tui.dialogs.approval_frame import describe
from chatops.tui.dialogs.approval_keys import AskedCall, call_legend
from chatops.tui.dialogs.approval_list import ApprovalList, LastSeenCall
from chatops.tui.dialogs.dialog_keys import Room
from chatops.tui.dialogs.rows import Row, line, wrap_row
from chatops.tui.theme import PLAIN
from tests.serve.served import read
from tests.support.cases import for_each
from tests.tui.app.dialog_scenes import budget, edit, risky
from tests.tui.app.fakes import code_facts, edit_facts, fetch_facts, pending_call, shell_facts
from tests.tui.app.support_app import stage

SERVER = ServerFacts(name="tickets", origin="https://tickets.example", tool="find", description="Finds\n\x1b[2Jthem.")
UNKNOWN = replace(pending_call(facts=shell_facts("make deploy")), reason=AskReason.OUTCOME_UNKNOWN)
CALLS = {
    "command": pending_call(),
    "dangerous command": risky(),
    "hostile command": pending_call(facts=shell_facts("ls \u202e\x1b[8m # rm -rf ~\n\n> x", argv=())),
    "code": pending_call(tool="python_exec", facts=code_facts("import os\nprint(1)", repairs=("a brace", "a quote"))),
    "edit": edit(),
    "new file": pending_call(tool="file_write", facts=replace(edit_facts(), creates=True, caution="It may hold keys.")),
    "fetch": pending_call(tool="web_fetch", facts=fetch_facts()),
    "own tool": pending_call(tool="order", facts=CallFacts(arguments='{"of":"tea","note":"a\\nb"}')),
    "server": pending_call(tool="tickets__find", facts=CallFacts(arguments='{"id":1}', server=SERVER, sandbox="basic")),
    "unreadable": pending_call(tool="order", facts=CallFacts(arguments="{oops")),
    "memory": pending_call(tool="memory_write", facts=replace(edit_facts(), needs_user="it becomes part of prompts")),
    "delegation": pending_call(
        tool="delegate",
        facts=CallFacts(
            arguments='{"role":"writer","task":"Write it."}',
            needs_user="role writer has rights that this turn lacks",
            delegation=DelegationFacts(
                role="writer", model="Qwen", adds=("+ file_write", "model Qwen at \u202egateway"), grant="9d1c5e02"
            ),
        ),
    ),
    "child": replace(pending_call(), caller="coder"),
    "denied": replace(pending_call(), denial=Denial(role="viewer", by="site", could_run=("coder",))),
    "changed": pending_call(reason=AskReason.CHANGED, facts=replace(shell_facts("make"), hashes=("/w/Makefile 0",))),
    "edited": pending_call(reason=AskReason.EDITED),
    "copied": pending_call(reason=AskReason.COPIED),
    "budget": budget(),
    "unknown": replace(
        UNKNOWN,
        interruption=Interruption(
            call_id=UNKNOWN.call.id, attempt=1, started_at=1e9, output="one\n", processes=Processes.STOPPED, count=2
        ),
    ),
    "reveals": pending_call(facts=replace(shell_facts("git remote -v"), reveals="git can show .git/config.")),
    "credential": pending_call(facts=replace(shell_facts("curl x"), credentials=("T at a.example as X: {}",))),
    "unsandboxed": pending_call(facts=replace(shell_facts("ls"), sandboxed=False, sandbox="off (no bwrap)")),
}

NOT_SHOWN = frozenset(
    # These say why a call cannot be approved at all, or are shown by other fields.
    "problems may_resolve refusal workspace argv creates extra_sandbox contained folder".split()
)


def rows(asked: PendingCall, *, before: CallSheet | None = None, details: bool = True) -> tuple[Row, ...]:
    described = describe(asked, theme=PLAIN, before=before, details=details)
    return described.rows if details else described.rows[: described.payload]


def seen(asked: PendingCall) -> str:
    return "\n".join(row.text for row in rows(asked))


def paged(asked: PendingCall) -> str:
    """The text of the page of a call."""
    login = Login(number=1, client="", form_token="t", since=0, used_at=0)
    shown = ShownCall(
        id=asked.call.id,
        digest=asked.digest,
        state="",
        listed=None,
        page=call_page(asked, None, may_decide=True),
        decided="",
        then="",
        blocked="",
    )
    return read(draw("call.html", login=login, call=shown, note="", title="call")).text


def assert_all_show_the_same(asked: PendingCall) -> None:
    sheet = call_sheet(asked, now=time.time())
    dialog, text, value = [row.text for row in rows(asked)], printed(asked), describe_json(asked)
    page = paged(asked)
    listed = [(one["label"], one["value"], one["weight"]) for one in value["facts"]]  # type: ignore[index,union-attr,call-overload]
    for one in sheet.facts:
        assert (one.label, one.value, one.weight.value) in listed
        block = one.form in (Form.TEXT, Form.PROGRAM, Form.DIFF, Form.FOREIGN)
        for part in one.value.split("\n") if block else [one.value]:
            assert reveal(part, newlines=False) in text
            if one.form is Form.DIFF:
                continue  # Drawn with line numbers; the tests of diffs hold it to every character.
            assert any(line(part) in shown for shown in dialog), (one.label, part)
            assert sanitize(line(part)) in page, (one.label, part)
    steps = next_steps([asked], then="")
    assert all(reveal(one.value, newlines=False) in steps for one in sheet.warnings)
    offers = {one["key"]: one["allows"] for one in value["offers"]}  # type: ignore[index,union-attr,call-overload]
    assert offers == {one.key: one.allows for one in sheet.offers}
    waiting = ApprovalList()
    waiting.refresh([asked])
    legend = call_legend(AskedCall(item=waiting.items[0], calls=waiting), room=Room.USUAL)
    named = {hint.key for hints in legend.lines for hint in hints}
    for key in ("a", "s", "S", "r", "+", "c"):
        assert (key in named) == (key in offers), (key, legend)
        if key in "sSr+":
            assert (f"In the chat, {key} " in text) == (f"In the chat, {key} " in page) == (key in offers)
    answers = call_page(asked, None, may_decide=True).answers
    assert any(answer.runs for answer in answers) == ("a" in offers)
    assert all(answer.label in page for answer in answers)


@for_each("kind", CALLS)
def test_each_surface_shows_all_facts_of_a_call_and_offers_the_same(kind: str) -> None:
    assert_all_show_the_same(CALLS[kind])


TEXT = st.text(st.sampled_from("ab \u202e\x1b\n;|>~/'\"{}")) | st.text(max_size=8)
RANDOM = st.builds(
    replace,
    st.sampled_from([one.facts for one in CALLS.values()]),
    repairs=st.lists(TEXT, max_size=3).map(tuple),
    caution=TEXT,
    reveals=TEXT,
    needs_user=TEXT,
    cwd=TEXT,
    paths=st.lists(TEXT, max_size=3).map(tuple),
    hosts=st.lists(TEXT, max_size=2).map(tuple),
    sandbox=TEXT,
    sandboxed=st.booleans(),
    network=st.booleans(),
    hashes=st.lists(TEXT, max_size=2).map(tuple),
)


@given(RANDOM, st.sampled_from(["shell_exec", "file_edit", "web_fetch", "order"]), st.sampled_from(AskReason))
def test_any_facts_are_on_each_surface(facts: CallFacts, tool: str, reason: AskReason) -> None:
    assert_all_show_the_same(pending_call(tool=tool, facts=facts, reason=reason))


ENDS = "\n\r\v\f\x1c\x85\u2028\u2029"
FORGED = st.lists(
    st.sampled_from([*ENDS, "\r\n", "\u202e", "path: ", "careful", "}", "  ", " " * 70, "│ ", "1 "])
    | st.text(max_size=3),
    max_size=8,
).map("".join)
NESTED = FORGED | st.integers() | st.dictionaries(FORGED, FORGED | st.lists(FORGED, max_size=2), max_size=2)


def beginnings(lines: list[str]) -> list[str]:
    """Return those lines of a block that begin where an argument does."""
    return [one for one in lines if one[:1] not in ("", " ", "}", "]")]


@given(st.dictionaries(FORGED | st.just("path"), NESTED, min_size=1, max_size=3), st.integers(12, 100))
def test_no_value_has_a_line_that_could_be_the_next_argument_or_fact(given: dict[str, JsonValue], width: int) -> None:
    asked = pending_call(tool="order", facts=CallFacts(arguments=json.dumps(given)))
    sheet = call_sheet(asked, now=time.time())
    (fact,) = (one for one in sheet.facts if one.label == "arguments")
    # A script may print it as it is.
    found = beginnings(fact.value.splitlines())
    assert len(found) == len(given)
    assert all(one.startswith((f"{key}:", '"')) for one, key in zip(found, given, strict=True))
    block = next(one for one in call_page(asked, None, may_decide=True).call if one.title == fact.title)
    assert len(beginnings(["".join(text for text, _ in row) for row in block.lines])) == len(given)
    shown = rows(asked, details=False)
    at = next(at for at, row in enumerate(shown) if row.text == "Arguments")
    part = [one for row in shown[at + 1 :] if row.label is None and row.exact for one in wrap_row(row, width=width)]
    assert {one.left for one in part} <= {"  ", "» "}
    assert len(beginnings([one.text for one in part if one.left == "  "])) == len(given)
    out = Terminal()
    Screen(out=out, err=out).exactly(printed(asked))
    after = out.getvalue().partition("Arguments:\n")[2].partition("\n\n")[0].split("\n")
    assert all(one.startswith("  ") for one in after) and len(beginnings([one[2:] for one in after])) == len(given)


def test_many_arguments_do_not_keep_a_surface_busy() -> None:
    # Time that grows with the square of their number would be minutes.
    given = {f"key{at}": at for at in range(20_000)}
    sheet = call_sheet(pending_call(tool="order", facts=CallFacts(arguments=json.dumps(given))), now=0)
    assert any("key19999: 19999" in fact.value for fact in sheet.facts)


class Terminal(StringIO):
    """A terminal of 80 columns."""

    def isatty(self) -> bool:
        return True


@given(RANDOM, st.sampled_from(AskReason), st.integers(12, 100))
def test_no_value_continues_where_labels_begin(facts: CallFacts, reason: AskReason, width: int) -> None:
    facts = replace(facts, command=f"{facts.command}{' ' * 70}sandbox {facts.caution}", cwd=f"/{'x y ' * 30}")
    asked = pending_call(tool="order", facts=facts, reason=reason)
    for row in rows(asked):
        for one in wrap_row(row, width=width)[1:]:
            assert (one.left + one.text).startswith((" ", "»")) or (row.tone != "heading" and not row.label), row
    out, text = Terminal(), printed(asked)
    Screen(out=out, err=out).exactly(text)
    shown = out.getvalue().split("\n")
    assert all(len(one) < 80 for one in shown)
    assert "".join(one.removeprefix("    » ") for one in shown) == text.replace("\n", "")


def each_fact() -> Iterator[tuple[str, CallFacts, str]]:
    """Yield each field of the facts, facts with a value there that stands nowhere else, and how that is shown."""
    plain = CallFacts(arguments='{"command":"true"}', command="true")
    extra = SandboxSpec(hosts=("only-here.example",))
    special: dict[str, tuple[object, str]] = {
        "arguments": ('{"command":"true","only":"here"}', "here"),
        "network": (True, "yes"),
        "sandboxed": (True, ""),
        "lacks": ((Lack(by="it", needs=extra),), "only-here.example"),
        "extra": (extra, "only-here.example"),
        "delegation": (DelegationFacts(role="r", model="m", adds=("only-here",), grant="g"), "only-here"),
        "server": (replace(SERVER, description="only-here"), "only-here"),
        "paths": (("/only/here",), "/only/here"),
        "hashes": (("/only/here 00",), "/only/here 00"),
    }
    for field in fields(CallFacts):
        if field.name not in NOT_SHOWN:
            usual: object = ("only-here",) if "tuple" in str(field.type) else "only-here"
            value, shown = special.get(field.name, (usual, "only-here"))
            yield field.name, replace(plain, **{field.name: value}), shown  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "facts", "shown"), [pytest.param(*one, id=one[0]) for one in each_fact()])
def test_no_surface_forgets_a_field_of_the_facts(name: str, facts: CallFacts, shown: str) -> None:
    asked = pending_call(facts=facts)
    told = call_sheet(asked, now=time.time()).facts
    assert any(shown in one.value for one in told), f"{name} is shown nowhere: name it in the sheet"
    assert shown in seen(asked) and shown in printed(asked)


ASKED_ABOUT: dict[str, tuple[object, str]] = {
    "call": (replace(pending_call().call, name="only-here"), "only-here"),
    "why": ("only-here", "only-here"),
    "role": ("only-here", "only-here"),
    "caller": ("only-here", "only-here"),
    "approvers": (("@only-here",), "only-here"),
    "model": ("only-here", "only-here"),
    "said": ("only-here", "only-here"),
    "denial": (Denial(role="coder", by="only-here"), "only-here"),
    "gate": (StepGate(name="only-here", step="edit"), "only-here"),
    "reason": (AskReason.CHANGED, "no longer what would run"),
    "interruption": (
        Interruption(
            call_id=UNKNOWN.call.id, attempt=1, started_at=1e9, output="only-here", processes=Processes.STOPPED
        ),
        "only-here",
    ),
}
"""Fields of a pending call, with a value that stands nowhere else and how it is shown."""
NOT_READ = {
    "facts": "each of its fields has the test above",
    "digest": "an approval is bound to it",
    "known": "it decides which answers are offered",
}
"""Fields that nobody reads, with the reason."""


def test_no_surface_forgets_a_field_of_a_pending_call() -> None:
    forgotten = {field.name for field in fields(PendingCall)} - {*ASKED_ABOUT, *NOT_READ}
    assert not forgotten, "yield a fact for it in call_sheet.py, and name it here"
    for name, (value, shown) in ASKED_ABOUT.items():
        asked = replace(pending_call(), **{name: value})  # type: ignore[arg-type]
        heading = f"{asked.role} {asked.model}"
        assert shown in heading + seen(asked), f"{name} is not in the dialog"
        assert shown in printed(asked) + next_steps([asked], then=""), f"approvals show forgets {name}"
        assert shown in json.dumps(describe_json(asked)), f"{name} is not in the JSON of approvals show"


# Order and folding


async def screen_rows(*asked: PendingCall, keys: tuple[str, ...] = ()) -> list[str]:
    """Return what stands in the dialog above its keys, at 80x24."""
    async with stage(size=(80, 24)) as running:
        running.session.ask(*asked)
        await running.settle()
        await running.press("down", *keys)
        view = running.dialog.payload
        return [view.render_line(y).text.rstrip() for y in range(view.size.height)]


async def test_a_plain_command_needs_few_rows_and_fewer_the_second_time() -> None:
    programs = ", ".join(f"/home/ana/.tools/{name}" for name in ("rust", "node", "python", "go"))
    sandbox = f"bubblewrap: no network, workspace writable, its .git read-only, no home, programs of {programs}"
    calls = [pending_call(at, facts=replace(shell_facts(f"ls {at}"), sandbox=sandbox)) for at in (1, 2)]
    first = await screen_rows(calls[0])
    assert first[0].strip() == "ls 1" and len(first) <= 6
    assert any(" no home" in row and row.endswith(" … v") for row in first), "and the key of the rest"
    assert {row[:12].strip() for row in first[1:]} == {"", "runs in", "sandbox", "asks because"}
    whole = "\n".join(row.text for row in rows(calls[0], details=True))
    assert sandbox in whole, "the details show what one line cannot"
    second = await screen_rows(*calls, keys=("a",))
    assert second == [
        "  ls 2",
        "",
        "as before    runs in /home/ana/project · sandbox bubblewrap: no network,",
        "             workspace writa… · asks because tool setting: shell_exec asks",
    ]


async def test_a_row_that_changed_since_the_last_call_is_shown_and_v_shows_all() -> None:
    call = pending_call(2, facts=replace(shell_facts("ls"), sandbox="other"))
    shown = await screen_rows(pending_call(1), call, keys=("a",))
    assert "sandbox      other" in shown
    assert "as before    runs in /home/ana/project · asks because tool setting:" in shown
    shown = await screen_rows(pending_call(1), call, keys=("a", "v"))
    assert "runs in      /home/ana/project" in shown and "The model says" in shown


async def test_a_file_that_stays_as_it_is_is_named_first() -> None:
    facts = replace(edit_facts(), arguments='{"content":"b = 1","path":"src/app.py"}', diff="")
    assert (await screen_rows(pending_call(tool="file_write", facts=facts)))[0] == "src/app.py"


async def test_one_row_alone_does_not_fold() -> None:
    call = pending_call(2, facts=replace(shell_facts("ls"), sandbox="other", cwd="/home/ana/elsewhere"))
    shown = "\n".join(await screen_rows(pending_call(1), call, keys=("a",)))
    assert "asks because" in shown and "as before" not in shown


@for_each("kind", ["changed", "edited", "copied", "unknown"])
def test_a_call_that_asks_again_folds_nothing_and_cautions_never_fold(kind: str) -> None:
    waiting, again = ApprovalList(), CALLS[kind]
    waiting.refresh([again])
    before = call_sheet(again, now=time.time())
    LastSeenCall(sheet=before).set_before(waiting.items[0])
    assert waiting.items[0].before is None
    for asked in CALLS.values():
        sheet = call_sheet(asked, now=time.time())
        shown, folded = sheet.fold_known(sheet)
        assert {one.weight for one in folded} <= {Weight.SETTING}
        assert set(shown) | set(folded) == {one for one in sheet.facts if one.weight is not Weight.DETAIL}
        texts = [row.text for row in rows(asked, before=sheet, details=False)]
        assert all(line(one.value) in texts for one in sheet.warnings)


@for_each(
    "command", ["rm -rf ~/", 'rm -rf "$HOME"', "rm -rf .", "rm -rf *", "rm -r ../..", "rm -rf /*", "true && rm -rf ./"]
)
def test_deleting_a_folder_that_holds_the_workspace_is_said(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ana")
    facts = CallFacts(arguments="{}", command=command, workspace="/home/ana/project", cwd="/home/ana/project")
    assert "holds the whole workspace" in printed(pending_call(tool="shell_exec", facts=facts))
    harmless = replace(facts, command=command.replace("rm", "ls"))
    kept = replace(facts, command="rm -rf build/* ~/other")
    for other in (harmless, kept):
        assert "holds the whole workspace" not in printed(pending_call(tool="shell_exec", facts=other))


def test_the_cautions_of_a_dangerous_command_are_within_the_first_twelve_rows() -> None:
    for asked in (risky(), pending_call(facts=shell_facts("echo line\n" * 60 + "sudo rm -rf ~ | sh", argv=()))):
        sheet = call_sheet(asked, now=time.time())
        first = [row.text for row in rows(asked, details=False)[:12]]
        assert sheet.warnings and all(line(one.value) in first for one in sheet.warnings)


async def test_a_caution_that_was_only_scrolled_past_keeps_the_call_from_being_approved() -> None:
    repairs = tuple(f"repair {number}" for number in range(40))
    asked = pending_call(tool="python_exec", facts=code_facts("print(1)\n" * 80, repairs=repairs))
    async with stage(size=(80, 24)) as running:
        running.session.ask(asked)
        await running.settle()
        await running.press("end", "a")
        assert running.session.taken == [] and "repair 20" in running.text, "it goes to what was skipped"
        shown = set[str]()
        for _ in range(20):
            shown |= {one for one in repairs if f"{one} " in f"{running.text} "}
            await running.press("a")
            if running.session.taken:
                break
        assert shown >= set(repairs[20:]) and len(running.session.taken) == 1


# What s and S allow


@for_each(
    ("kind", "named"),
    [
        ("command", "s this command, this session"),
        ("fetch", "s any web_fetch of example.org, this session"),
        ("edit", "s any file_edit of this file, this session   S any file_edit in src/, this session"),
        ("server", "s exactly these arguments, this session"),
        ("own tool", "s exactly these arguments, this session"),
    ],
)
def test_the_line_of_keys_names_what_s_allows(kind: str, named: str) -> None:
    waiting = ApprovalList()
    waiting.refresh([CALLS[kind]])
    assert named in call_legend(AskedCall(item=waiting.items[0], calls=waiting), room=Room.USUAL).draw(200).plain


async def test_one_key_allows_all_edits_in_the_folder_for_the_session() -> None:
    async with stage(size=(100, 40)) as running:
        running.session.ask(edit())
        await running.settle()
        await running.press("down", "S")
        (taken,) = running.session.taken
        assert taken.decision == Approved(remember=PathPattern(glob="src/**"), scope=RuleScope.SESSION)


@pytest.mark.parametrize(
    "change",
    [
        {"paths": ("/home/ana/project/src/conftest.py",)},
        {"paths": ("/home/ana/project/src/Makefile",)},
        {"paths": ("/home/ana/project/src/package.json/x",)},
        {"caution": "It may hold keys or passwords."},
        {"repairs": ("a brace",)},
        {"needs_user": "the tool has changed"},
        {"paths": ("/home/ana/project/top.py",)},
    ],
    ids=str,
)
async def test_it_is_never_offered_for_what_runs_later_or_needs_the_user(change: dict[str, object]) -> None:
    asked = replace(edit(), facts=replace(edit().facts, **change))  # type: ignore[arg-type]
    async with stage(size=(100, 40)) as running:
        running.session.ask(asked)
        await running.settle()
        await running.press("down", "S")
        assert running.session.taken == []
        assert "This call has no rule for all edits in its folder." in running.text
        assert "S any" not in running.text
