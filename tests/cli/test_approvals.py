"""The queue of gated calls from another terminal: see everything, decide once, go on."""

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.command_line import REPOSITORY, CommandLine
from tests.support.fake_openai import FakeOpenAI, call, calls, says


def test_a_list_has_the_beginning_of_a_long_call_and_says_so(chatops: CommandLine) -> None:
    _, call = chatops.paused(f"run `touch {'x' * 200}`")
    _, row = chatops("approvals", "list").out.splitlines()
    assert row.startswith(call)
    assert row.endswith("x… (cut; show has all of it)")
    assert "x" * 200 not in row


def test_a_gated_call_is_approved_elsewhere_and_runs_once(chatops: CommandLine) -> None:
    session, call = chatops.paused("run `echo once >> log.txt`")
    log = chatops.workspace / "log.txt"

    (listed,) = chatops("approvals", "list", "--output-format", "json").json
    assert (listed["id"], listed["session_id"], listed["decision"]) == (call, session, None)
    assert call in chatops("approvals", "list").out

    approved = chatops("approvals", "approve", call)
    assert approved.code == 0
    assert "echo once >> log.txt" in approved.out
    assert f"chatops resume {session}" in approved.err
    assert not log.exists()

    resumed = chatops("resume", session, "--output-format", "json")
    assert resumed.code == 0
    assert resumed.json["status"] == "answered"
    assert "via approvals" in resumed.json["calls"][0]["decided_by"]
    assert log.read_text() == "once\n"

    again = chatops("resume", session)
    assert again.code == 0
    assert "already ended" in again.err
    assert log.read_text() == "once\n"
    assert chatops("approvals", "list", "--output-format", "json").json == []


def test_show_has_the_facts_of_the_dialog(chatops: CommandLine) -> None:
    _, call = chatops.paused("replace Friday with Monday in note.txt")
    shown = chatops("approvals", "show", call)
    assert shown.code == 0
    for expected in ("coder (demo)", "file_edit", str(chatops.workspace / "note.txt"), "Friday", "+", "Digest"):
        assert expected in shown.out
    value = chatops("approvals", "show", call, "--output-format", "json").json
    assert value["tool"] == "file_edit"
    assert value["paths"] == [str(chatops.workspace / "note.txt")]
    assert "Monday" in value["diff"]


def test_what_a_command_may_reveal_is_told_wherever_it_can_be_approved(chatops: CommandLine) -> None:
    for words in (["init", "-q"], ["config", "remote.origin.url", "https://user:secretpw@example.org/x.git"]):
        subprocess.run(["git", *words], cwd=chatops.workspace, check=True)
    paused = chatops("--role", "coder", "-p", "run `git remote -v`")
    assert paused.code == 3
    told = f"git can show {chatops.workspace / '.git/config'}, which may hold keys or passwords."
    call = chatops("approvals", "list", "--output-format", "json").json[0]
    assert {"label": "careful", "value": told, "weight": "caution"} in call["facts"]
    for surface in (paused.err, chatops("approvals", "show", call["id"]).out):
        assert told in surface


def test_an_answer_that_the_dialog_does_not_offer_is_not_named(chatops: CommandLine) -> None:
    chatops("--role", "coder", "-p", "run `ls`")
    (call,) = chatops("approvals", "list", "--output-format", "json").json
    assert "In the chat, s allows" in chatops("approvals", "show", call["id"]).out
    assert [one["key"] for one in call["offers"]] == ["a", "s", "r", "c", "e"]


def test_a_denial_tells_the_model_why(chatops: CommandLine) -> None:
    session, call = chatops.paused("run `touch made.txt`")
    assert chatops("approvals", "deny", call, "--reason", "not on a Friday").code == 0
    resumed = chatops("resume", session, "--output-format", "json")
    assert resumed.code == 0
    assert resumed.json["calls"][0]["outcome"] == "denied"
    assert "not on a Friday" in resumed.json["answer"]
    assert not (chatops.workspace / "made.txt").exists()


def test_the_first_decision_counts(chatops: CommandLine) -> None:
    session, call = chatops.paused("run `touch made.txt`")
    assert chatops("approvals", "deny", call).code == 0
    late = chatops("approvals", "approve", call)
    assert late.code == 1
    assert "The first decision counts" in late.err
    assert chatops("resume", session).code == 0
    assert not (chatops.workspace / "made.txt").exists()


def test_edited_arguments_are_checked_shown_and_are_what_runs(chatops: CommandLine) -> None:
    session, call = chatops.paused("run `touch made.txt`")
    edited = chatops("approvals", "approve", call, "--edit", '{"command": "touch other.txt"}')
    assert edited.code == 0
    assert "touch other.txt" in edited.out
    assert chatops("resume", session).code == 0
    assert (chatops.workspace / "other.txt").exists()
    assert not (chatops.workspace / "made.txt").exists()


def test_an_edit_that_cannot_run_approves_nothing(chatops: CommandLine) -> None:
    session, call = chatops.paused("run `touch made.txt`")
    for edit, code in (('{"command": 5}', 1), ("[1]", 2), ("{", 2)):
        refused = chatops("approvals", "approve", call, "--edit", edit)
        assert refused.code == code
        assert refused.out == ""
    assert chatops("resume", session).code == 3
    assert not (chatops.workspace / "made.txt").exists()
    (waiting,) = chatops("approvals", "list", "--output-format", "json").json
    assert waiting["arguments"] == {"command": "touch made.txt"}


def test_a_call_that_the_rights_in_force_now_deny_is_not_approved(chatops: CommandLine) -> None:
    _, call = chatops.paused("run `touch made.txt`")
    for action in (("approve", call), ("approve", call, "--edit", '{"command": "touch other.txt"}')):
        refused = chatops("approvals", *action, "--access", "viewer")
        assert (refused.code, refused.out) == (1, "")
        assert "access level viewer" in refused.err
    (listed,) = chatops("approvals", "list", "--output-format", "json").json
    assert listed["decision"] is None
    assert not (chatops.workspace / "made.txt").exists()


def test_a_call_of_a_role_that_has_lost_the_tool_names_the_roles_that_could_run_it(chatops: CommandLine) -> None:
    file = chatops.workspace.parent / "registry.json"
    value = json.loads((REPOSITORY / "model_registry.json").read_text())
    value |= {"roles": {"coder": value["roles"]["coder"]}, "default_role": "coder"}
    file.write_text(json.dumps(value))
    session, call = chatops.paused("run `touch made.txt`", "--registry", str(file))
    value["roles"]["coder"]["tools"] = ["file_read"]
    value["roles"]["fixer"] = {"tools": ["shell_exec"]}
    file.write_text(json.dumps(value))
    said = "It cannot run now, as coder. Denied by: tools of role coder. Role fixer could run it."
    refused = chatops("approvals", "approve", call, "--registry", str(file))
    assert (refused.code, refused.out) == (1, "")
    assert said in refused.err
    assert f"chatops -r {session} --role fixer" in refused.err
    assert "Do not try it again" not in refused.err
    shown = chatops("approvals", "show", call, "--registry", str(file))
    assert said in shown.out
    assert "approvals approve" not in shown.err
    assert "cannot run now" in chatops("approvals", "list", "--registry", str(file)).out
    (listed,) = chatops("approvals", "list", "--registry", str(file), "--output-format", "json").json
    assert listed["denial"] == {"role": "coder", "by": "tools of role coder", "could_run": ["fixer"]}
    assert chatops("approvals", "deny", call, "--registry", str(file)).code == 0
    assert not (chatops.workspace / "made.txt").exists()


@pytest.mark.some(1)
@pytest.mark.parametrize("flags", [("--role", "researcher"), ("--model", "env"), ("--approve", "shell_exec:touch *")])
def test_a_prompt_that_a_pending_call_refuses_changes_nothing(chatops: CommandLine, flags: tuple[str, str]) -> None:
    session, call = chatops.paused("run `touch made.txt`")
    before = chatops("sessions", "show", session, "--output-format", "json").json
    queue = chatops("approvals", "list", "--output-format", "json").json
    refused = chatops("-r", session, "-p", "x", *flags, "--output-format", "json")
    assert refused.code == 3
    assert "The prompt was not sent" in refused.err
    assert (refused.json["role"], refused.json["pending"][0]["id"]) == ("coder", call)
    assert chatops("sessions", "show", session, "--output-format", "json").json == before
    assert chatops("approvals", "list", "--output-format", "json").json == queue
    assert chatops("approvals", "approve", call).code == 0
    assert chatops("resume", session, "--output-format", "json").json["calls"][0]["outcome"] == "success"
    assert (
        chatops("-r", session, "-p", "x", "--role", "researcher", "--output-format", "json").json["role"]
        == "researcher"
    )


def test_a_call_is_named_by_the_beginning_or_end_that_only_it_has_and_is_said_in_full(chatops: CommandLine) -> None:
    session, call = chatops.paused("run `touch one.txt`")
    for name in (session, call[:-2], call[-6:]):
        shown = chatops("approvals", "show", name)
        assert (shown.code, f"{name} means {call}." in shown.err) == (0, True)
    short = chatops("approvals", "deny", call[-5:])
    assert (short.code, "6 or more characters" in short.err) == (1, True)
    edited = chatops("approvals", "approve", call[-7:], "--edit", '{"command": "touch two.txt"}')
    assert (edited.code, edited.err.count(f"means {call}.")) == (0, 1)
    assert chatops("resume", session).code == 0
    assert (chatops.workspace / "two.txt").exists()


@pytest.mark.some(1)
@pytest.mark.parametrize("action", ["approve", "deny", "show"])
def test_what_several_calls_begin_or_end_with_names_none_of_them(chatops: CommandLine, action: str) -> None:
    session, call = chatops.paused("run `touch one.txt` and run `touch two.txt`")
    _, elsewhere = chatops.paused("run `touch three.txt`")
    for name, meant in ((session, [call, f"{call[:-1]}2"]), (call[-6:], [call, elsewhere])):
        ambiguous = chatops("approvals", action, name)
        assert ambiguous.code == 2
        assert all(one in ambiguous.err for one in meant)
    assert chatops("approvals", action, "").code == 1
    assert not any(one["decision"] for one in chatops("approvals", "list", "--output-format", "json").json)


def test_a_mistyped_id_is_corrected_and_no_call_of_another_conversation_is_suggested(chatops: CommandLine) -> None:
    session, call = chatops.paused("run `touch made.txt`")
    typo = chatops("approvals", "approve", f"{call}9")
    assert (typo.code, f"Did you mean {call}?" in typo.err) == (1, True)
    stamp, _, _ = session.rpartition("-")
    other = chatops("approvals", "approve", f"{stamp}-zzzz.1.1.9")
    assert (other.code, "Did you mean" in other.err) == (1, False)


def test_decisions_are_in_the_audit_log(chatops: CommandLine) -> None:
    session, call = chatops.paused("run `touch made.txt`")
    chatops("approvals", "deny", call, "--reason", "no")
    chatops("resume", session)
    (listed,) = chatops("audit", "list", "--decision", "denied", "--output-format", "json").json
    assert (listed["call_id"], listed["decision"]["kind"], listed["by"]["via"]) == (call, "rejected", "approvals")
    log = [json.loads(line) for line in chatops("audit", "export", "--session", session).out.splitlines()]
    assert [row["kind"] for row in log] == ["prompt", "verdict", "decision"]
    (exported,) = (row for row in log if row["kind"] == "decision")
    assert exported == listed
    assert "denied: no" in chatops("audit", "list").out
    for flags, found in (
        (["--decision", "denied", "--since", "2001-01-01", "--tool", listed["tool"]], 1),
        (["--decision", "approved"], 0),
        (["--since", "2999-12-31T23:59"], 0),
        (["--tool", "web_fetch"], 0),
    ):
        assert len(chatops("audit", "export", *flags).out.splitlines()) == found, flags
    assert chatops("audit", "list", "--since", "yesterday").code == 2


@pytest.mark.more
def test_resuming_from_another_folder_works_where_the_session_belongs(
    chatops: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, call = chatops.paused("run `touch made.txt`")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert chatops("approvals", "approve", call, "--edit", '{"command": "touch other.txt"}').code == 0
    wrong = chatops("--workspace", str(elsewhere), "resume", session)
    assert wrong.code == 2
    assert "belongs to" in wrong.err
    assert chatops("resume", session).code == 0
    assert (chatops.workspace / "other.txt").exists()
    assert list(elsewhere.iterdir()) == []


def test_a_session_whose_folder_is_gone_runs_nowhere(
    chatops: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, call = chatops.paused("run `touch made.txt`")
    chatops("approvals", "approve", call)
    monkeypatch.chdir(tmp_path)
    chatops.workspace.rename(tmp_path / "moved")
    ran = chatops("resume", session)
    assert ran.code == 2
    assert "that folder is gone" in ran.err
    assert not (tmp_path / "moved" / "made.txt").exists()


def test_an_approval_of_what_was_shown_is_none_of_what_came_after(chatops: CommandLine) -> None:
    _, call = chatops.paused("run `touch made.txt`")
    shown = chatops("approvals", "show", call)
    words = shown.err.split()
    digest = words[words.index("--digest") + 1]
    for wrong in ("0" * 16, digest[:4], ""):
        refused = chatops("approvals", "approve", call, "--digest", wrong)
        assert refused.code == 1
        assert "nothing was approved" in refused.err
    edited = chatops("approvals", "approve", call, "--digest", "0" * 16, "--edit", '{"command": "ls"}')
    assert edited.code == 1
    assert chatops("approvals", "list", "--output-format", "json").json[0]["decision"] is None
    assert chatops("approvals", "approve", call, "--digest", digest.upper()).code == 0


@pytest.mark.more
def test_no_rule_answers_a_call_whose_reply_the_providers_filter_ended(chatops: CommandLine) -> None:
    filtered = calls(call("file_read", path="note.txt"), finish_reason="content_filter")
    with FakeOpenAI([filtered, says("Friday.")]) as server:
        registry = chatops.workspace.parent / "registry.json"
        registry.write_text(
            json.dumps(
                {
                    "version": 3,
                    "models": {"mine": {"api_url": server.url, "model_name": "m"}},
                    "roles": {"reader": {"primary": "mine", "tools": ["file_read"]}},
                }
            )
        )
        options = ["--registry", str(registry), "--role", "reader"]
        ran = chatops(*options, "-p", "read it", "--approve", "file_read", "--output-format", "json")
        assert ran.code == 3, ran.err
        (pending,) = ran.json["pending"]
        assert "content filter" in pending["why"]
        assert "content filter" in chatops(*options, "approvals", "show", pending["id"]).out
        assert chatops(*options, "approvals", "approve", pending["id"]).code == 0
        ended = chatops(*options, "resume", ran.json["session_id"])
        assert (ended.code, ended.out.strip()) == (0, "Friday."), ended.err


def test_what_ran_is_what_was_shown_to_the_byte(chatops: CommandLine) -> None:
    folder = chatops.workspace / "sub"
    folder.mkdir()
    (folder / "ran.py").write_text("import os, sys\nopen('plain', 'w').write('\\0'.join([os.getcwd(), *sys.argv]))\n")
    asked = [
        call("shell_exec", command="python3 ran.py 'two  words' '' \"a\\\"b\" é '$A' --", cwd="sub"),
        call("shell_exec", command="(pwd -P; cat /proc/$$/cmdline) >ran;  : # 'é\t'\n", cwd="sub"),
        call("python_exec", code="open('sub/code', 'wb').write(open('/proc/self/cmdline', 'rb').read())  # é\t'\n"),
        call("file_write", path="sub/new.txt", content="\ttwo  spaces \r\n\\n é \u2028 no end"),
    ]
    with FakeOpenAI([calls(*asked), says("Done.")]) as server:
        registry = chatops.workspace.parent / "registry.json"
        models = {"m": {"api_url": server.url, "model_name": "m"}}
        roles = {"coder": {"primary": "m", "tools": [one.name for one in asked[1:]]}}
        users = {"*": {"access_level": "operator"}}
        registry.write_text(json.dumps({"version": 3, "models": models, "roles": roles, "users": users}))
        flags = ["--registry", str(registry)]
        paused = chatops(*flags, "-p", "go", "--output-format", "json").json
        shown = []
        for one in paused["pending"]:
            shown.append(chatops(*flags, "approvals", "show", one["id"], "--output-format", "json").json)
            assert chatops(*flags, "approvals", "approve", one["id"]).code == 0
        assert chatops(*flags, "resume", paused["session_id"]).code == 0
    plain, shell, code, written = shown
    ran = (folder / "plain").read_text().split("\0")
    assert ran == [plain["cwd"], *shlex.split(plain["command"])[1:]]
    where, _, line = (folder / "ran").read_text().partition("\n")
    assert (where, line.split("\0")[-2]) == (shell["cwd"], shell["command"])
    assert (folder / "code").read_text().split("\0")[-2] == code["command"]
    new, change = folder / "new.txt", written["diff"].encode()
    made = new.read_bytes()
    assert written["paths"] == [str(new)]
    new.unlink()
    subprocess.run(["git", "apply", "-"], input=change, cwd=chatops.workspace, check=True)
    assert new.read_bytes() == made
