"""No path that a model writes leads out of the workspace or to what is protected."""

import os
import unicodedata
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chatops.domain.errors import ToolFailedError
from chatops.toolkit.base import ToolContext
from chatops.toolkit.confine import locate, opened_file, opened_folder
from tests.tools.toolkit import context_for


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    """A workspace with traps in it, a secret beside it."""
    root = tmp_path.resolve() / "ws"
    (root / "sub" / ".git").mkdir(parents=True)
    (root / ".git" / "hooks").mkdir(parents=True)
    (root / ".git" / "config").write_text("x", encoding="utf-8")
    (root / "a.txt").write_text("hello", encoding="utf-8")
    out = root.parent / "out"
    out.mkdir()
    (out / "secret.txt").write_text("secret", encoding="utf-8")
    (root.parent / "wsevil").mkdir()
    for name, target in [("link", "../out/secret.txt"), ("dlink", "../out"), ("loop", "loop"), ("in", "a.txt")]:
        (root / name).symlink_to(target)
    (root / "hop").symlink_to("sub/../dlink")
    return root


OUTSIDE = ["..", "../out/secret.txt", "/etc/passwd", "/proc/self/environ", "link", "dlink/secret.txt", "hop/secret.txt"]
OUTSIDE += ["dlink/new", "../wsevil/x", "sub/../../out", "missing/../../out/secret.txt", "a.txt/../../out", "~", "~/.x"]


@pytest.mark.parametrize("raw", OUTSIDE)
@pytest.mark.parametrize("write", [False, True])
def test_paths_out_of_the_workspace_are_refused(ws: Path, raw: str, write: bool) -> None:
    place = locate(raw, context=context_for(ws), write=write)
    assert "outside the workspace" in place.refusal
    assert not place.usable


@pytest.mark.parametrize(
    "raw", ["", "a\0b", "x\n\x1b[2Jy", "file:///etc/passwd", "n" * 300, "a/" * 3000, "a\udc00", "loop"]
)
def test_malformed_paths_are_problems(ws: Path, raw: str) -> None:
    place = locate(raw, context=context_for(ws))
    assert place.problem is not None
    assert not place.usable


@pytest.mark.parametrize("raw", ["a.txt", "./a.txt", "in", "sub/../a.txt", "new/deep/x.txt", "日本.txt", "~$doc", "."])
def test_paths_inside_the_workspace_are_resolved(ws: Path, raw: str) -> None:
    place = locate(raw, context=context_for(ws), write=raw != ".")
    assert place.usable, place
    assert place.path.is_relative_to(ws)
    assert not place.caution


def test_an_absolute_path_inside_is_fine(ws: Path) -> None:
    assert locate(str(ws / "a.txt"), context=context_for(ws)).path == ws / "a.txt"


def test_protected_paths_are_refused_inside_the_workspace_too(ws: Path) -> None:
    (ws / "state").mkdir()
    (ws / "way").symlink_to("state")
    context = context_for(ws, protected=(ws / "state",))
    for raw in ("state", "state/db", "way/db", "sub/../state/x"):
        assert "protected" in locate(raw, context=context).refusal


@pytest.mark.parametrize(
    "raw", [".ssh/id_canary", "x/.SSH/y", "id_ed25519", ".netrc", ".aws/credentials", ".kube/config"]
)
def test_credentials_are_refused_by_name(ws: Path, raw: str) -> None:
    assert "protected" in locate(raw, context=context_for(ws)).refusal


def test_credentials_of_the_home_are_refused_when_it_is_the_workspace(
    ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(ws))
    for raw in (".config/gh/hosts.yml", ".docker/config.json", ".npmrc", ".config/chatops/x"):
        assert "protected" in locate(raw, context=context_for(ws)).refusal
    assert "any of your files" in locate("a.txt", context=context_for(ws)).caution


@pytest.mark.parametrize(
    "raw", [".git/hooks/pre-commit", ".git/config", ".GIT/config", "sub/.git/x", ".git", ".g\u200bit/config", "git~1/x"]
)
def test_writes_to_git_are_refused(ws: Path, raw: str) -> None:
    assert ".git decide" in locate(raw, context=context_for(ws), write=True).refusal


def test_reading_git_is_fine_and_its_config_asks(ws: Path) -> None:
    assert locate(".git/hooks", context=context_for(ws)).usable
    assert "keys or passwords" in locate(".git/config", context=context_for(ws)).caution


@pytest.mark.parametrize(
    ("raw", "asks"),
    [
        *(
            (name, True)
            for name in (".env", ".env.local", ".envrc", "tls/server.pem", "SERVER.KEY", "id_work", ".npmrc")
        ),
        *((name, True) for name in (".npmrc", ".docker/config.json", "credentials.json", ".bash_history", "a.p12")),
        *(
            (name, False)
            for name in (".env.example", "id_work.pub", "id_map.py", "config.json", "key.py", "keys/a.txt")
        ),
        ("node_modules/tls/test.pem", False),
    ],
)
def test_files_that_often_hold_secrets_ask(ws: Path, raw: str, asks: bool) -> None:
    assert bool(locate(raw, context=context_for(ws)).caution) == asks


def test_a_second_name_of_a_file_asks(ws: Path) -> None:
    os.link(ws.parent / "out" / "secret.txt", ws / "hard.txt")
    assert "hard links" in locate("hard.txt", context=context_for(ws)).caution


def test_a_name_in_another_normal_form_is_found(ws: Path) -> None:
    composed = unicodedata.normalize("NFC", "é.txt")
    (ws / composed).write_text("x", encoding="utf-8")
    place = locate(unicodedata.normalize("NFD", composed), context=context_for(ws))
    assert place.info is not None


def read(path: Path, context: ToolContext) -> bytes:
    with opened_file(path, context=context) as descriptor:
        return os.read(descriptor, 100)


def test_a_swap_between_check_and_use_is_not_followed(ws: Path) -> None:
    context = context_for(ws)
    place = locate("a.txt", context=context)
    (ws / "a.txt").unlink()
    (ws / "a.txt").symlink_to("../out/secret.txt")
    with pytest.raises(ToolFailedError):
        read(place.path, context)


def test_a_folder_swapped_between_check_and_use_is_not_followed(ws: Path) -> None:
    context = context_for(ws)
    (ws / "sub" / "secret.txt").write_text("mine", encoding="utf-8")
    place = locate("sub/secret.txt", context=context)
    assert read(place.path, context) == b"mine"
    (ws / "sub").rename(ws / "sub2")
    (ws / "sub").symlink_to("../out")
    with pytest.raises(ToolFailedError, match="changed since"):
        read(place.path, context)
    with (
        pytest.raises(ToolFailedError, match="changed since"),
        opened_folder(ws / "sub" / "n", context=context, create=True),
    ):
        pass


def test_a_pipe_is_not_waited_for(ws: Path) -> None:
    os.mkfifo(ws / "pipe")
    with pytest.raises(ToolFailedError, match="not a regular file"):
        read(ws / "pipe", context_for(ws))


PART = st.sampled_from(
    ["..", ".", "", "a.txt", "sub", "dlink", "link", "hop", "in", "loop", "x", "~", ".git", "out", "ws"]
)


@pytest.mark.more
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(PART | st.text(max_size=4), max_size=8), absolute=st.booleans())
def test_usable_paths_are_inside_and_open_the_checked_file(ws: Path, parts: list[str], absolute: bool) -> None:
    context = context_for(ws)
    place = locate(("/" if absolute else "") + "/".join(parts), context=context)
    if not place.usable:
        return
    assert place.path.is_relative_to(ws)
    assert Path(os.path.realpath(place.path)) == place.path
    if place.path.is_file():
        assert read(place.path, context) != b"secret"
