"""Decisions on the page: posted once, on what was shown, by a login that the log names."""

import json
import re
import socket
import sqlite3
from pathlib import Path

import pytest

from tests.serve.served import Served, read, serving
from tests.tools.running import needs_sandbox


def test_a_call_is_listed_shown_approved_and_runs_once(served: Served) -> None:
    call = served.paused("run `echo once >> log.txt`")
    cookie = served.log_in(served.links[0])
    listed = read(served.get("/", cookie=cookie).text)
    assert "1 call waiting" in listed.text and "echo once >> log.txt" in listed.text
    assert ("a", (("href", f"/call/{call}"),)) in listed.elements
    shown = served.get(f"/call/{call}", cookie=cookie).text
    assert shown.index("asks because") < shown.index(">Approve once<"), "the button stands after the last row"
    approved = served.decide(call, "approve", cookie)
    assert (approved.status, approved.where) == (303, f"/call/{call}")
    after = read(served.get(f"/call/{call}", cookie=cookie).text).text
    session = call.partition(".")[0]
    assert f"{call} was approved by uid " in after and f"chatops resume {session}" in after
    assert "Approve" not in after and "Decided" in after and not (served.workspace / "log.txt").exists()
    resumed = served.run("resume", session, "--output-format", "json")
    assert resumed.returncode == 0
    assert "via serve" in json.loads(resumed.stdout)["calls"][0]["decided_by"]
    assert (served.workspace / "log.txt").read_text() == "once\n"
    (entry,) = [
        json.loads(line) for line in served.run("audit", "export", "--decision", "approved").stdout.splitlines()
    ]
    port = served.origin.rpartition(":")[2]
    assert entry["by"]["via"] == "serve" and entry["by"]["host"] == socket.gethostname()
    assert entry["by"]["tty"] == f"browser page localhost:{port}, login 1 from 127.0.0.1"
    gone = served.get(f"/call/{call}", cookie=cookie)
    assert (
        gone.status == 200 and "was approved by" in gone.text and '<form method="post" action="/call' not in gone.text
    )
    assert served.get("/call/20260101-000000-aaaa.1.1.1", cookie=cookie).status == 404


def test_the_second_decision_is_told_of_the_first(served: Served) -> None:
    call = served.paused("run `touch made.txt`")
    first, second = served.log_in(), served.log_in()
    form = {**served.fields(f"/call/{call}", second), "answer": "approve"}
    assert served.decide(call, "deny", first).status == 303
    late = served.ask("POST", f"/call/{call}", cookie=second, form=form, origin=served.origin)
    assert late.status == 409
    assert re.search(
        r"was denied by uid \d+ .*browser page localhost:.*login 1 from 127.0.0.1.*The first decision counts",
        read(late.text).text,
    )
    assert served.run("resume", call.partition(".")[0]).returncode == 0
    late = served.ask("POST", f"/call/{call}", cookie=second, form=form, origin=served.origin)
    assert late.status == 409 and "was denied by uid" in late.text
    assert not (served.workspace / "made.txt").exists()
    gone, nowhere = (served.get(path, cookie=second) for path in ("/call/x.1.1.1", "/nowhere"))
    assert (gone.status, "There is no such call." in gone.text) == (404, True)
    assert (nowhere.status, "There is no such page." in nowhere.text) == (404, True)


def test_a_call_that_changed_after_it_was_shown_is_not_approved(served: Served) -> None:
    call = served.paused("run `touch made.txt`")
    cookie = served.log_in()
    shown = {**served.fields(f"/call/{call}", cookie), "answer": "approve"}
    (store,) = served.home.rglob("chatops.db")
    with sqlite3.connect(store) as rows:
        # What the owner of the session does when the call is inspected again and differs.
        ((body,),) = rows.execute("SELECT body FROM pending").fetchall()
        other = shown["digest"][::-1]
        rows.execute("UPDATE pending SET digest = ?, body = ?", (other, body.replace(shown["digest"], other)))
    rows.close()
    for answer in ("approve", "deny"):
        late = served.ask(
            "POST", f"/call/{call}", cookie=cookie, form={**shown, "answer": answer}, origin=served.origin
        )
        assert late.status == 409 and "has changed since you opened it" in late.text
        assert "Nothing was decided" in late.text and ">Approve once<" in late.text
    assert re.search(rf"{call}.* pending ", served.run("approvals", "list").stdout)


@pytest.mark.more
def test_a_reason_reaches_the_model(served: Served) -> None:
    call = served.paused("run `touch made.txt`")
    cookie = served.log_in()
    assert served.decide(call, "reason", cookie, reason="not on a <Friday> & never").status == 303
    listed = read(served.get("/", cookie=cookie).text).text
    assert "Decided, not resumed yet" in listed and "denied by uid" in listed
    assert "denied by uid" in served.run("approvals", "list").stdout
    resumed = served.run("resume", call.partition(".")[0], "--output-format", "json")
    assert "not on a <Friday> & never" in json.loads(resumed.stdout)["answer"]
    assert not (served.workspace / "made.txt").exists()


@pytest.mark.more
def test_one_of_two_calls_is_decided(served: Served) -> None:
    first = served.paused("run `touch one.txt` and run `touch two.txt`")
    cookie = served.log_in()
    assert "2 calls waiting" in served.get("/", cookie=cookie).text
    assert served.decide(first, "approve", cookie).status == 303
    waiting, _, decided = served.get("/", cookie=cookie).text.partition("Decided, not resumed yet")
    one, two = ("<code>touch one.txt</code>", "<code>touch two.txt</code>")
    assert "1 call waiting" in waiting and two in waiting and one not in waiting
    assert one in decided and "approved by uid" in decided


def test_a_call_that_the_role_may_not_make_now_is_not_approved(served: Served) -> None:
    call = served.paused("run `touch made.txt`")
    cookie = served.log_in()
    form = {**served.fields(f"/call/{call}", cookie), "answer": "approve"}
    registry = served.home / "config" / "model_registry.json"
    registry.parent.mkdir(exist_ok=True)
    registry.write_text(json.dumps({"version": 3, "tools": {"shell_exec": {"verdict": "deny"}}}))
    refused = served.ask("POST", f"/call/{call}", cookie=cookie, form=form, origin=served.origin)
    assert refused.status == 409 and "was not approved" in refused.text
    page = read(served.get(f"/call/{call}", cookie=cookie).text).text
    assert "Not permitted now: Shell" in page and "Denied by" in page
    assert "Approve once" not in page and "Deny with a reason" in page


@needs_sandbox
def test_the_changes_of_a_contained_turn_are_shown_file_by_file_and_applied(served: Served) -> None:
    call = served.paused("replace Friday with Monday in note.txt", "--contain")
    cookie = served.log_in()
    page = read(served.get(f"/call/{call}", cookie=cookie).text)
    assert "Apply the changes of this turn?" in page.text and "change note.txt  +1 −1" in page.text
    assert [tag for tag, attributes in page.elements if tag == "tr" and ("class", "add") in attributes]
    assert "Friday" in page.text and "Monday" in page.text and "Send back with a reason" in page.text
    assert served.decide(call, "approve", cookie).status == 303
    assert served.run("resume", call.partition(".")[0]).returncode == 0
    assert "Monday" in (served.workspace / "note.txt").read_text()


@needs_sandbox
def test_only_ticked_changes_are_applied_and_only_as_they_were_read(served: Served) -> None:
    call = served.paused("run `echo 1 > one.txt` and run `echo 2 > two.txt` and run `echo 3 > tri.txt`", "--contain")
    cookie = served.log_in()
    boxes = _boxes(served.get(f"/call/{call}", cookie=cookie).text)
    assert list(boxes.values()) == ["one.txt", "tri.txt", "two.txt"]
    form = {**served.fields(f"/call/{call}", cookie), "answer": "approve", "only": "0"}
    (served.workspace / "one.txt").write_text("mine")
    late = served.ask("POST", f"/call/{call}", cookie=cookie, form=form, origin=served.origin)
    assert late.status == 409 and "not those that you have read. Nothing was decided" in late.text
    assert list(_boxes(late.text).values()) == ["tri.txt", "two.txt"] and "In conflict, stays" in late.text
    (served.workspace / "one.txt").unlink()
    for none in ("", "7 x"):
        refused = served.decide(call, "approve", cookie, only=none)
        assert refused.status == 409 and "no file is ticked" in refused.text
    (two,) = (box for box, name in boxes.items() if name == "two.txt")
    assert served.decide(call, "approve", cookie, only=two).status == 303
    assert served.run("resume", call.partition(".")[0]).returncode == 0
    assert sorted(path.name for path in served.workspace.iterdir()) == ["note.txt", "two.txt"]


def _boxes(page: str) -> dict[str, str]:
    """The file of each box to tick, by what the box sends."""
    found = re.findall(r'<h2 class="file">\S+ (\S+) .*?</h2>(.*?)(?=<h2|<details)', page, re.DOTALL)
    return {
        box[1]: name for name, rest in found if (box := re.search(r'type="checkbox" name="only" value="(\d+)"', rest))
    }


@needs_sandbox
@pytest.mark.more
def test_the_changes_of_a_contained_turn_are_discarded(served: Served) -> None:
    call = served.paused("replace Friday with Monday in note.txt", "--contain")
    cookie = served.log_in()
    state = _state(served.get(f"/call/{call}", cookie=cookie).text)
    assert _state(served.get(f"/call/{call}", cookie=cookie).text) == state
    (served.workspace / "note.txt").write_text("The invoice is due on Friday, or later.\n")
    # The page that is open learns of the conflict.
    assert _state(served.get(f"/call/{call}", cookie=cookie).text) != state
    assert served.decide(call, "deny", cookie).status == 303
    assert served.run("resume", call.partition(".")[0]).returncode == 0
    assert "Friday" in (served.workspace / "note.txt").read_text()


def _state(page: str) -> str:
    return page.partition('data-state="')[2].partition('"')[0]


@pytest.mark.more
def test_two_servers_have_two_names_and_logins(served: Served, tmp_path: Path) -> None:
    cookie = served.log_in()
    with serving(served.home, served.workspace) as other:
        assert other.host.partition(":")[0] != served.host.partition(":")[0] and other.port != served.port
        assert other.get("/", cookie=cookie).status == 401
