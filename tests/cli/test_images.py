"""Files and images in results and messages: kept beside the session, sent to models that take images, else named."""

import base64
import json
import stat
import struct
import zlib
from pathlib import Path

import pytest

from chatops.domain.errors import ChatopsError
from chatops.domain.files import FileRef, image_size, media_type
from chatops.domain.ids import SessionId
from chatops.store.session_files import MAX_BYTES, SessionFiles, can_be_opened
from chatops.wiring.workspace import open_file
from tests.support.command_line import CommandLine
from tests.support.fake_openai import FakeOpenAI, Raw, Reply, call, calls, says
from tests.support.waiting import until


def png(width: int = 2, height: int = 1) -> bytes:
    """A picture whose header claims this size, with the data of a tiny one."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    data = zlib.compress(b"\0" + b"\x80" * 2)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def flags(chatops: CommandLine, server: FakeOpenAI, **model: object) -> list[str]:
    """Flags for a registry with one model at `server`."""
    file = chatops.workspace.parent / "r.json"
    models = {"m": {"api_url": server.url, "model_name": "m", **model}}
    roles = {"assistant": {"primary": "m", "tools": ["file_read"]}}
    file.write_text(json.dumps({"version": 3, "models": models, "roles": roles}))
    return ["--registry", str(file), "--output-format", "json"]


def kept(home: Path) -> list[Path]:
    return sorted(path for path in home.rglob("files/*/*") if path.is_file())


def home() -> Path:
    import os

    from chatops.config.paths import find_paths

    return find_paths(os.environ).data


def test_an_image_that_a_tool_reads_is_sent_to_a_model_that_takes_images(chatops: CommandLine) -> None:
    (chatops.workspace / "chart.png").write_bytes(png())
    with FakeOpenAI([calls(call("file_read", path="chart.png")), says("A grey line."), says("Still grey.")]) as server:
        ran = chatops(*flags(chatops, server, images=True), "-p", "What is in chart.png?")
        assert ran.json["answer"] == "A grey line."
        *_, result, _between, shown = server.requests[-1].messages
        assert "chart.png (image/png" in result["content"]
        assert "not shown" not in result["content"]
        assert shown["role"] == "user"
        url = shown["content"][1]["image_url"]["url"]
        assert base64.b64decode(url.removeprefix("data:image/png;base64,")) == png()
        (file,) = kept(home())
        assert file.read_bytes() == png()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700

        chatops(*flags(chatops, server, images=False), "-p", "And now?", "-c")
        assert "image_url" not in json.dumps(server.requests[-1].messages)
        assert "[The image is not shown to you.]" in json.dumps(server.requests[-1].messages)
        assert not server.violations
        chatops("sessions", "delete", ran.json["session_id"], "--yes")
        assert kept(home()) == []


def test_the_user_is_told_that_a_model_does_not_see_an_image_and_how_to_change_it(chatops: CommandLine) -> None:
    (chatops.workspace / "chart.png").write_bytes(png())
    with FakeOpenAI(
        [says("What image?"), calls(call("file_read", path="chart.png")), says("?"), says("No.")]
    ) as server:

        def told(message: str, **model: object) -> str:
            registry = flags(chatops, server, **model)[:2]
            return chatops(*registry, "-p", message, *(["-c"] if server.requests else [])).err

        unseen = "m does not see images, only their names."
        assert f"{unseen} If it can, set images of m to true in the registry." in told("What is in @chart.png?")
        assert f"{unseen}\n" in told("Read chart.png", images=False)
        assert unseen not in told("And now?"), "no new image"
    said = chatops("-p", "What is in @chart.png?").err
    assert "demo does not see images, only their names." in said and "registry" not in said


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "data",
    [png(width=60_000, height=60_000), png() + b"\0" * 6_000_000, b"\x89PNG\r\n\x1a\n" + b"\0" * 20],
    ids=["pixels", "bytes", "no header"],
)
def test_an_image_that_no_server_would_take_is_only_named(chatops: CommandLine, data: bytes) -> None:
    (chatops.workspace / "bomb.png").write_bytes(data)
    with FakeOpenAI([calls(call("file_read", path="bomb.png")), says("I cannot see it.")]) as server:
        ran = chatops(*flags(chatops, server, images=True), "-p", "Look at bomb.png")
        assert ran.json["answer"] == "I cannot see it."
        sent = json.dumps(server.requests[-1].messages)
        assert "image_url" not in sent
        assert "bomb.png (image/png" in sent


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "message",
    [
        "Invalid content type. image_url is only supported by certain models.",
        "m is not a multimodal model",
        "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
        "No endpoints found that support image input",
    ],
)
def test_a_server_that_refuses_images_is_asked_without_them_from_then_on(chatops: CommandLine, message: str) -> None:
    (chatops.workspace / "chart.png").write_bytes(png())
    body = json.dumps({"error": {"message": message}}).encode()
    refusal = Raw(steps=(body,), status=400, content_type="application/json")
    replies: list[Reply] = [
        calls(call("file_read", path="chart.png")),
        refusal,
        says("I cannot see it."),
        says("Still not."),
    ]
    with FakeOpenAI(replies) as server:
        ran = chatops(*flags(chatops, server, images=True), "-p", "What is in chart.png?")
        assert ran.json["answer"] == "I cannot see it."
        chatops(*flags(chatops, server, images=True), "-p", "Sure?", "-c")
        assert [("image_url" in json.dumps(seen.messages)) for seen in server.requests] == [False, True, False, False]


def test_bytes_decide_on_the_type_and_the_name_is_only_shown(tmp_path: Path) -> None:
    files, session = SessionFiles(tmp_path / "files"), SessionId("../../etc")
    odd = files.keep(session, "../../a\x1b[2J\u202egnp.desktop", b"[Desktop Entry]\nExec=touch /tmp/x\n")
    assert odd.path.isprintable()
    assert "/" not in odd.path
    place = files.path_of(odd)
    assert place is not None
    assert place.suffix == ".txt"
    assert place.is_relative_to(tmp_path / "files")
    program = files.keep(session, "cat.png", b"\x7fELF\0\0")
    assert not program.is_image
    assert not can_be_opened(program)
    large = files.keep(session, "large.png", png() + bytes(MAX_BYTES))
    assert "larger" in large.problem
    assert files.read(large) is None


def test_a_kept_file_that_was_changed_is_gone_and_a_fork_keeps_its_own(tmp_path: Path) -> None:
    files = SessionFiles(tmp_path / "files")
    one = files.keep(SessionId("a"), "one.png", png())
    files.share(SessionId("a"), SessionId("b"))
    files.forget(SessionId("a"))
    assert files.read(one) == png()
    place = files.path_of(one)
    assert place is not None
    place.write_bytes(png(3, 3))
    assert files.read(one) is None
    assert files.read(FileRef(path="x", type="image/png", digest="*" * 64)) is None


@pytest.mark.parametrize(
    ("data", "type_", "size"),
    [
        (png(640, 480), "image/png", (640, 480)),
        (b"GIF89a" + struct.pack("<HH", 7, 9), "image/gif", (7, 9)),
        (b"\xff\xd8\xff\xe0\0\x04ab\xff\xc0\0\x11\x08" + struct.pack(">HH", 5, 6) + b"\x03", "image/jpeg", (6, 5)),
        (b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + b"\x03\0\0\x04\0\0", "image/webp", (4, 5)),
        (b"\xff\xd8\xff\xe0\0\0" + b"\xff" * 40, "image/jpeg", None),
        (b"%PDF-1.7", "application/pdf", None),
        (b"plain", "text/plain", None),
        (b"\xff\xfe\0", "application/octet-stream", None),
    ],
)
def test_headers_tell_type_and_size(data: bytes, type_: str, size: tuple[int, int] | None) -> None:
    assert media_type(data) == type_
    assert image_size(data) == size


def test_export_and_import_keep_the_files(chatops: CommandLine) -> None:
    (chatops.workspace / "chart.png").write_bytes(png())
    replies = [calls(call("file_read", path="chart.png")), says("Grey."), says("Still grey.")]
    with FakeOpenAI(replies) as server:
        first = chatops(*flags(chatops, server, images=True), "-p", "What is in chart.png?").json["session_id"]
        chatops("sessions", "export", first, "--format", "jsonl", "--output", "session.jsonl")
        chatops("sessions", "delete", first, "--yes")
        assert kept(home()) == []
        (copy,) = chatops("sessions", "import", "session.jsonl").out.split()
        assert [file.read_bytes() for file in kept(home())] == [png()]
        chatops(*flags(chatops, server, images=True), "-p", "And now?", "-r", copy)
        assert "image_url" in json.dumps(server.requests[-1].messages)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("name", "data", "ending"),
    [
        ("a.desktop", b"[Desktop Entry]\nExec=sh\n", ".txt"),
        ("run.sh", b"#!/bin/sh\n", ".txt"),
        ("c.html", png(), ".png"),
    ],
)
async def test_what_is_opened_is_named_by_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, data: bytes, ending: str
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "xdg-open").write_text(
        '#!/bin/sh\necho "$1 $OPENAI_API_KEY" >"$0.log.part"; mv "$0.log.part" "$0.log"\n'
    )
    (programs / "xdg-open").chmod(0o755)
    monkeypatch.setattr("chatops.wiring.workspace._PROGRAM_PATH", str(programs))
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    files = SessionFiles(tmp_path / "files")
    file = files.keep(SessionId("s"), name, data)
    assert open_file(files, file).startswith(f"Opened {name} (")
    await until((programs / "xdg-open.log").exists)
    opened, _, key = (programs / "xdg-open.log").read_text().strip("\n").partition(" ")
    assert opened.endswith(ending)
    assert opened == str(files.path_of(file))
    assert not key


def test_what_a_program_could_execute_is_not_opened(tmp_path: Path) -> None:
    files = SessionFiles(tmp_path / "files")
    program = files.keep(SessionId("s"), "image.png", b"\x7fELF\0\0\0")
    with pytest.raises(ChatopsError, match="not opened from here"):
        open_file(files, program)
    gone = files.keep(SessionId("s"), "image.png", png())
    files.forget(SessionId("s"))
    with pytest.raises(ChatopsError, match="not there any more"):
        open_file(files, gone)
