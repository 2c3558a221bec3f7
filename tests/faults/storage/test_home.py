"""A home that is full, read-only, missing, or open to others; too few open files."""

import json
import os
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.installation import EFFECT, Installation
from tests.faults import places
from tests.faults.entry_points import Pipe, Provider, flat
from tests.faults.storage.chats import contents, goes_well, ready, said
from tests.store.storekit import problems
from tests.support.command_line import Ran
from tests.support.fake_openai import call, calls

mounts = pytest.mark.skipif(not places.can_mount(), reason="this user may not mount anything in a namespace of its own")


@mounts
@pytest.mark.fault("E01")
def test_a_full_disk_in_the_chat(installation: Installation, provider: Provider, tmp_path: Path) -> None:
    with (
        places.Mounts(installation, places.small_disk(installation.home, size="2m")) as disk,
        places.open_chat(installation, "--role", "coder", before=disk.before) as terminal,
    ):
        chat = ready(installation, provider, terminal)
        chat.say("before")
        chat.wait_for("You said: before")
        filler = places.fill(disk.seen(installation.home))
        # What was typed is taken, the answer comes, and the banner says what it is worth.
        banner = "Disk full: this turn is not saved. No call is approved or run until it is"
        for word in ("first", "second"):
            chat.say(f"{word} {'x' * 90}")
            chat.wait_for(f"You said: {word}")
            chat.wait_for(banner)
        chat.say("now run it", calls(call("shell_exec", command=EFFECT)))
        terminal.dialog()
        terminal.press("a")
        chat.wait_for("Your decision was not recorded. Disk full")
        assert re.search(banner, flat(terminal.text()))
        assert installation.count == 0
        filler.unlink()
        terminal.wait_gone("this turn is not saved")
        terminal.decide("a")
        chat.wait_for("You said: now run it")
        assert installation.count == 1
        chat.assert_well()
        asked = ["before", f"first {'x' * 14}", f"second {'x' * 13}", "now run it"]
        assert [text for text in said(disk.store(tmp_path)) if not text.startswith(("You said", "still"))] == asked


@pytest.mark.more
@mounts
@pytest.mark.fault("E01")
def test_a_chat_opened_on_a_full_disk_is_saved_once_there_is_room(
    installation: Installation, provider: Provider, tmp_path: Path
) -> None:
    with places.Mounts(installation, places.small_disk(installation.home, size="2m")) as disk:
        filler = places.fill(disk.seen(installation.home))
        with places.open_chat(installation, "--role", "coder", before=disk.before) as terminal:
            chat = ready(installation, provider, terminal)
            chat.wait_for("Not saving: disk full")
            chat.say("on a full disk")
            chat.wait_for("You said: on a full disk")
            chat.say("run it", calls(call("shell_exec", command=EFFECT)))
            terminal.dialog()
            terminal.press("a")
            chat.wait_for(r"Not approved: nothing can be saved \(disk full\)")
            filler.unlink()
            terminal.wait_gone("Not saving: disk full")
            # The call that was asked about before there was room.
            terminal.decide("a")
            chat.wait_for("Saving works again: this session is stored now.*You said: run it")
            assert installation.count == 1
            chat.say("run it again", calls(call("shell_exec", command=EFFECT)))
            terminal.dialog()
            terminal.kill9()
        assert said(disk.store(tmp_path)) == [
            "on a full disk",
            "You said: on a full ",
            "run it",
            "You said: run it",
            "run it again",
        ]
        with places.open_chat(installation, "-c", "--role", "coder", before=disk.before) as terminal:
            chat = ready(installation, provider, terminal)
            terminal.decide("a")
            chat.wait_for("on a full disk.*You said: run it.*You said: run it again")
            assert installation.count == 2
            assert "Not saving" not in terminal.text()
        assert provider.server.violations == []


@pytest.mark.more
@mounts
@pytest.mark.fault("E01")
def test_a_disk_without_inodes_is_not_a_folder_without_rights(installation: Installation, provider: Provider) -> None:
    with places.Mounts(installation, places.small_disk(installation.home, size="4m", files=40)) as disk:
        assert places.run(installation, "-p", "hello", before=disk.before).code == 0
        folder = disk.seen(installation.home)
        with suppress(OSError):
            for number in range(100):
                (folder / f"file{number}").touch()
        for arguments in (("-p", "tell me"), ("approvals", "deny", "xxxxxxx")):
            ran = places.run(installation, *arguments, before=disk.before)
            text = flat(ran.out + ran.err)
            assert "the disk has no inodes left" in text, arguments
            assert "folder writable" not in text
        (folder / "file0").unlink()
        (folder / "file1").unlink()
        again = places.run(installation, "-p", "and now?", "-c", before=disk.before)
        assert (again.code, again.out) == (0, "You said: and now?\n")
        assert provider.server.violations == []


NO_LOCKS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>

static int refused(int command) { return command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK; }

#define SHIM(NAME) \\
int NAME(int file, int command, ...) { \\
    va_list rest; \\
    va_start(rest, command); \\
    void *argument = va_arg(rest, void *); \\
    va_end(rest); \\
    if (refused(command)) { errno = ENOLCK; return -1; } \\
    return ((int (*)(int, int, ...))dlsym(RTLD_NEXT, #NAME))(file, command, argument); \\
}
SHIM(fcntl)
SHIM(fcntl64)
"""
"""A drive whose lock service is down: every lock on a range of a file is refused."""


@pytest.mark.more
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler for the drive without locks")
@pytest.mark.fault("E05")
def test_a_drive_that_grants_no_locks_is_not_held_by_another_program(
    installation: Installation, pipe: Pipe, tmp_path: Path
) -> None:
    assert pipe.ask("from before").code == 0
    source, library = tmp_path / "locks.c", tmp_path / "locks.so"
    source.write_text(NO_LOCKS)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    for arguments in (("-p", "tell me"), ("approvals", "deny", "xxxxxxx")):
        ran = places.run(installation, *arguments, before=[], env={"LD_PRELOAD": str(library)})
        assert "grants no locks" in flat(ran.err), arguments
        assert "another program" not in ran.err
    assert places.run(installation, "-p", "and now?", "-c", before=[]).code == 0


@pytest.mark.more
@pytest.mark.fault("E02")
def test_a_pipe_in_place_of_the_store_is_not_waited_for(installation: Installation, provider: Provider) -> None:
    (installation.home / "data").mkdir(parents=True)
    os.mkfifo(installation.home / "data" / "chatops.db")
    said = "is a pipe, socket or device, not a file."
    talked = places.run(installation, "-p", "hello", before=[])
    assert (talked.code, talked.out) == (0, "You said: hello\n")
    assert said in flat(talked.err)
    for arguments in (("sessions", "list"), ("approvals", "list"), ("approvals", "approve", "xxxxxxx"), ("doctor",)):
        ran = places.run(installation, *arguments, before=[])
        assert ran.code == 1
        assert said in flat(ran.out + ran.err), arguments
    assert provider.server.violations == []


@pytest.mark.more
@mounts
@pytest.mark.fault("E01")
@pytest.mark.parametrize("left", [36 * 1024, 72 * 1024])
def test_a_disk_with_room_only_to_open_the_store_is_like_a_read_only_home(
    installation: Installation, provider: Provider, left: int
) -> None:
    with places.Mounts(installation, places.small_disk(installation.home, size="2m")) as disk:
        assert places.run(installation, "-p", "from before", before=disk.before).code == 0
        places.fill(disk.seen(installation.home), left=left)
        for more in ((), ("-c",)):
            ran = places.run(installation, "-p", "tell me", *more, before=disk.before)
            assert (ran.code, ran.out) == (0, "You said: tell me\n"), ran.err
            assert ran.err.lower().count("disk full") == 1
        with places.open_chat(installation, "-c", before=disk.before) as terminal:
            terminal.send("typed early")
            chat = ready(installation, provider, terminal)
            chat.wait_for("from before.*Not saving: disk full[^.]*. Messages here.*typed early.*coder")
            terminal.press("enter")
            chat.wait_for("You said: typed early")
            terminal.press("ctrl+q")
            assert terminal.wait_exit() == 0
            assert terminal.text().startswith("Not saved: this session")


@pytest.mark.more
@mounts
@pytest.mark.fault("E01")
@pytest.mark.parametrize("approved", [False, True])
def test_on_a_full_disk_a_waiting_call_still_waits_and_cannot_be_decided(
    installation: Installation, provider: Provider, approved: bool
) -> None:
    with places.Mounts(installation, places.small_disk(installation.home, size="2m")) as disk:

        def run(*arguments: str) -> Ran:
            return places.run(installation, *arguments, before=disk.before)

        provider.script(calls(call("file_read", path="note.txt"), call("shell_exec", command=EFFECT)))
        paused = run("-p", "run it", "--output-format", "json")
        assert paused.code == 3, paused.err
        session, call_id = paused.json["session_id"], paused.json["pending"][0]["id"]
        if approved:
            assert run("approvals", "approve", call_id).code == 0
        filler = places.fill(disk.seen(installation.home), left=36 * 1024)
        with places.open_chat(installation, "-c", before=disk.before) as terminal:
            chat = ready(installation, provider, terminal)
            screen = flat(chat.wait_for("Not saving: disk full"))
            assert "still pending, cannot be approved or run here" in screen
            assert "outcome unknown" not in screen
            chat.assert_well()
            read, held = (m["content"] for m in provider.requests[-1].messages if m["role"] == "tool")
            assert "The invoice is due on Friday." in read
            assert held.startswith("Not run so far. This call is pending")
            terminal.press("ctrl+q")
            assert terminal.wait_exit() == 0
        refused = run("approvals", "approve", call_id)
        assert refused.code == 1, refused.out
        assert installation.count == 0
        filler.unlink()
        if not approved:
            assert run("approvals", "approve", call_id).code == 0
        resumed = run("resume", session)
        assert resumed.code == 0, resumed.err
        assert installation.count == 1
        assert provider.server.violations == []


@pytest.mark.more
@mounts
@pytest.mark.fault("E02")
def test_a_read_only_home(installation: Installation, provider: Provider, pipe: Pipe) -> None:
    assert pipe.ask("from before").code == 0
    before = contents(installation.home / "data")
    with (
        places.Mounts(installation, places.read_only(installation.home)) as disk,
        places.open_chat(installation, "-c", "--role", "coder", before=disk.before) as terminal,
    ):
        chat = ready(installation, provider, terminal)
        chat.wait_for("Not saving: home is read-only")
        # What is stored can be read and gone on with, in memory.
        chat.wait_for("You said: from before")
        chat.assert_well()
        chat.say("run it", calls(call("shell_exec", command=EFFECT)))
        terminal.dialog()
        terminal.press("a")
        chat.wait_for(r"Not approved: nothing can be saved \(home is read-only\)")
        terminal.decide("d")
        chat.wait_for("You said: run it")
        assert installation.count == 0
        chat.assert_well()
        terminal.press("ctrl+q")
        assert terminal.wait_exit() == 0
        assert "Not saved: this session. Not saving: home is read-only." in terminal.text()

        ran = places.run(installation, "-p", "without a screen", before=disk.before)
        assert (ran.code, ran.out) == (0, "You said: without a screen\n")
        assert "Not saving: home is read-only" in ran.err
        provider.script(calls(call("shell_exec", command=EFFECT)))
        gated = places.run(installation, "-p", "run it", before=disk.before)
        assert gated.code == 1
        assert "Not run: shell_exec needs approval, and nothing can be saved here" in gated.err
        assert "home is read-only" in gated.err
        provider.script(calls(call("shell_exec", command=EFFECT)))
        as_json = places.run(installation, "-p", "run it", "--output-format", "json", before=disk.before)
        assert (as_json.code, json.loads(as_json.out)["status"]) == (1, "failed")
        assert json.loads(as_json.out)["error"]["reason"] == "not_saved"
        assert "nothing can be saved here, so it cannot wait" in str(provider.requests[-1].messages[-1])
        provider.script(calls(call("shell_exec", command=EFFECT)))
        denied = places.run(installation, "-p", "run it", "--on-approval", "deny", before=disk.before)
        assert (denied.code, provider.requests[-1].messages[-1]["role"]) == (0, "tool")
        listed = places.run(installation, "sessions", "list", before=disk.before)
        assert (listed.code, "from before" in listed.out) == (0, True)
    assert contents(installation.home / "data") == before
    assert installation.count == 0
    pipe.assert_well()


@pytest.mark.more
@pytest.mark.fault("E03")
def test_a_home_that_is_not_there(installation: Installation, provider: Provider, tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir(mode=0o700)
    env = {"CHATOPS_HOME": "", "HOME": str(tmp_path / "nobody"), "TMPDIR": str(temporary)}
    with installation.open("--role", "coder", env=env) as terminal:
        chat = ready(installation, provider, terminal)
        chat.wait_for(r"The home folder .* does not exist\. Sessions are kept in")
        (place,) = temporary.glob("chatops-*")
        goes_well(chat, place / "data" / "chatops.db")
    assert [folder.stat().st_mode & 0o777 for folder in (place, place / "data")] == [0o700, 0o700]
    ran = places.run(installation, "-p", "again", "-c", before=["env"], env=env)
    assert (ran.code, ran.out) == (0, "You said: again\n")
    assert f"Sessions are kept in {place}" in ran.err
    assert said(place / "data" / "chatops.db")[-2:] == ["again", "You said: again"]


@pytest.mark.some(1)
@pytest.mark.skipif(not places.can_mount(), reason="this user cannot be another one for a while")
@pytest.mark.fault("E03")
@pytest.mark.parametrize("what", ["unset", "closed"])
def test_a_user_without_a_home(what: str, installation: Installation, provider: Provider, tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir(mode=0o700)
    home = tmp_path / "closed"
    home.mkdir(mode=0)
    unset = ["-u", "HOME"] if what == "unset" else []
    somebody = ["unshare", "--map-user=54321", "env", "-u", "CHATOPS_HOME", *unset, f"TMPDIR={temporary}"]
    before = [*somebody, *([f"HOME={home}"] if what == "closed" else [])]
    ran = places.run(installation, "-p", "hello", before=before)
    assert (ran.code, ran.out) == (0, "You said: hello\n"), ran.err
    why = "There is no home folder for this user." if what == "unset" else "cannot be reached"
    assert why in ran.err
    assert f"Sessions are kept in {temporary}/chatops-54321" in ran.err
    assert (temporary / "chatops-54321").stat().st_mode & 0o777 == 0o700


@pytest.mark.some(1)
@pytest.mark.fault("E16")
@pytest.mark.parametrize("files", [7, 32])
def test_few_open_files_without_a_screen(
    files: int, installation: Installation, provider: Provider, pipe: Pipe
) -> None:
    assert pipe.ask("before").code == 0
    provider.script(calls(*(call("file_read", path="note.txt", id=f"c{n}") for n in range(8))))
    ran = places.run(installation, "-p", "read it", "-c", before=few_files(files))
    assert "Traceback" not in ran.err
    if files < 32:
        assert re.search("too many open files", flat(ran.err), re.IGNORECASE)
    else:
        assert (ran.code, ran.out) == (0, "You said: read it\n")
    with installation.store() as store:
        assert problems(store) == []
    pipe.assert_well()


@pytest.mark.more
@pytest.mark.fault("E16")
def test_few_open_files_in_the_chat(installation: Installation, provider: Provider, pipe: Pipe, path: Path) -> None:
    with places.open_chat(installation, "--role", "coder", before=few_files(10)) as terminal:
        ready(installation, provider, terminal).wait_for(
            r"Not saving: too many open files.*Allow more of them: ulimit -n"
        )
    with places.open_chat(installation, "--role", "coder", before=few_files(32)) as terminal:
        chat = ready(installation, provider, terminal)
        chat.say("run it", calls(call("shell_exec", command=EFFECT)))
        terminal.dialog()
        terminal.press("a")
        chat.wait_for("You said: run it")
        assert installation.count == 1
        goes_well(chat, path)
    with installation.store() as store:
        assert problems(store) == []
    pipe.assert_well()


def few_files(most: int) -> list[str]:
    """Return the words to put before a command to limit its open files."""
    return ["sh", "-c", f'ulimit -n {most}; exec "$@"', "sh"]


@pytest.mark.more
@pytest.mark.fault("E18")
@pytest.mark.parametrize("umask", ["000", "077"])
def test_files_are_closed_whatever_the_umask(
    umask: str, installation: Installation, provider: Provider, pipe: Pipe, path: Path
) -> None:
    (installation.workspace.parent / "registry.json").chmod(0o666)
    shutil.rmtree(installation.home)
    before = ["sh", "-c", f'umask {umask}; exec "$@"', "sh"]
    with places.open_chat(installation, "--role", "coder", before=before) as terminal:
        chat = ready(installation, provider, terminal)
        chat.wait_for("can be written by everyone on this machine")
        chat.say("write it down", calls(call("scratch_write", text="a note")))
        chat.wait_for("You said: write it down")
        goes_well(chat, path)
        modes = {
            (file.is_dir(), file.stat().st_mode & 0o777) for file in (installation.home, *installation.home.rglob("*"))
        }
        assert modes == {(True, 0o700), (False, 0o600)}
        assert sorted(file.name[10:] for file in path.parent.glob("chatops.db*")) == ["", "-shm", "-wal"]
    ran = pipe.ask("hello")
    assert (ran.code, "can be written by everyone on this machine" in ran.err) == (0, True)
    assert "can be written by everyone on this machine" in pipe.run("doctor").out
