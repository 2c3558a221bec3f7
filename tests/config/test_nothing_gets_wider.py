"""Nothing gets wider because a file broke: arbitrary damage to a registry file, read through `load_registry`."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatops.config.document import MalformedFileError, parse
from chatops.config.paths import Paths
from chatops.config.registry import Loaded, load_registry
from chatops.config.site_files import SitePlace
from chatops.domain.model import ModelTarget
from chatops.domain.tools import BUILT_IN_TOOLS, NO_CAPABILITIES, AccessLevel, CallFacts, ToolSpec, Verdict
from chatops.policy.grant import Grant
from chatops.policy.resolve import User, resolve_grant
from tests.support.properties import examples

INTACT: dict[str, Any] = {
    "version": 3,
    "default_role": "coder",
    "roles": {
        "coder": {
            "tools": ["file_read", "file_edit"],
            "rules": [{"tool": "file_edit", "verdict": "deny", "match": ["secret/**"]}],
        },
        "free": {"max_rounds": 3},
    },
    "users": {"*": {"access_level": "viewer"}, "ana": {"access_level": "operator", "confirm_deny": ["web_fetch"]}},
    "tools": {"shell_exec": {"verdict": "deny"}, "file_read": {"min_access": "user"}},
    "max_rounds": 5,
}
TEXT = json.dumps(INTACT, indent=1).encode()
TOOLS = {
    "file_read": (AccessLevel.VIEWER, Verdict.ALLOW),
    "web_fetch": (AccessLevel.USER, Verdict.ASK),
    "file_edit": (AccessLevel.OPERATOR, Verdict.ASK),
    "shell_exec": (AccessLevel.OPERATOR, Verdict.ASK),
}
SPECS = [
    ToolSpec(
        name=name,
        capabilities=BUILT_IN_TOOLS.get(name, NO_CAPABILITIES),
        description="",
        schema="{}",
        min_access=level,
        verdict=verdict,
    )
    for name, (level, verdict) in TOOLS.items()
]
USERS = [User(uid=1, login="ana"), User(uid=2, login="guest")]
CALLS = [CallFacts(arguments="{}", cwd="/w"), CallFacts(arguments="{}", cwd="/w", paths=("/w/secret/a",))]


def load(base: Path, data: bytes) -> Loaded:
    paths = Paths(config=base / "config", data=base / "data", log=base / "log")
    paths.config.mkdir(exist_ok=True)
    paths.registry.write_bytes(data)
    site = SitePlace(path=base / "none" / "model_registry.json", owner=os.getuid(), top=base)
    return load_registry(path=None, paths=paths, env={}, site=site)


def grants(loaded: Loaded) -> list[Grant]:
    return [
        resolve_grant(
            registries=loaded.registries,
            role=role.name,
            user=user,
            access_cap=loaded.access_cap,
            specs=SPECS,
            models=[ModelTarget(name="demo")],
            prompt="",
        )
        for user in USERS
        for role in loaded.registry.roles
    ]


def table(loaded: Loaded) -> dict[tuple[str, str, str, int], int]:
    """Strictness of each call, per user, role and tool."""
    out = {}
    for user in USERS:
        for role in loaded.registry.roles:
            held = resolve_grant(
                registries=loaded.registries, role=role.name, user=user, access_cap=loaded.access_cap,
                specs=SPECS, models=[ModelTarget(name="demo")], prompt="",
            )  # fmt: skip
            for tool in TOOLS:
                for index, facts in enumerate(CALLS):
                    out[user.login, role.name, tool, index] = held.judge(tool, facts).verdict.strictness
    return out


damages = st.one_of(
    st.tuples(st.just("cut"), st.integers(0, len(TEXT) - 1), st.just(b"")),
    st.tuples(st.just("delete"), st.integers(0, len(TEXT) - 1), st.binary(min_size=1, max_size=3)),
    st.tuples(st.just("insert"), st.integers(0, len(TEXT)), st.binary(min_size=1, max_size=3)),
    st.tuples(st.just("replace"), st.integers(0, len(TEXT) - 1), st.binary(min_size=1, max_size=1)),
)


def damaged(damage: tuple[str, int, bytes]) -> bytes:
    kind, at, junk = damage
    match kind:
        case "cut":
            return TEXT[:at]
        case "delete":
            return TEXT[:at] + TEXT[at + len(junk) :]
        case "insert":
            return TEXT[:at] + junk + TEXT[at:]
        case _:
            return TEXT[:at] + junk + TEXT[at + 1 :]


@pytest.mark.more
@settings(max_examples=examples(75), deadline=None)
@given(damage=damages)
def test_a_broken_file_with_a_good_copy_changes_nothing(damage: tuple[str, int, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        before = table(load(Path(folder), TEXT))
        after = load(Path(folder), damaged(damage))
        if after.broken is not None:
            assert table(after) == before
            assert after.notices


@settings(max_examples=examples(75), deadline=None)
@given(damage=damages)
def test_a_broken_file_without_a_copy_leaves_reading_at_most(damage: tuple[str, int, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        after = load(Path(folder), damaged(damage))
        if after.broken is None:
            return
        for grant in grants(after):
            assert grant.level is AccessLevel.VIEWER
            assert {spec.name for spec in grant.tools} <= {"file_read"}


def key_damages() -> list[bytes]:
    """The file with one key that the format gives (not a name that a user chose) misspelt by one letter."""
    out = []
    for key in (
        "tools",
        "rules",
        "users",
        "verdict",
        "access_level",
        "confirm_deny",
        "min_access",
        "match",
        "max_rounds",
    ):
        quoted = f'"{key}"'.encode()
        for place in range(len(TEXT)):
            if TEXT.startswith(quoted, place):
                for letter in range(len(key)):
                    bad = key[:letter] + key[letter + 1 :]
                    out.append(TEXT[:place] + f'"{bad}"'.encode() + TEXT[place + len(quoted) :])
                    out.append(TEXT[:place] + f'"{key[:letter]}q{key[letter:]}"'.encode() + TEXT[place + len(quoted) :])
    return out


def test_a_misspelt_key_that_decides_rights_is_never_read_as_absent() -> None:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        before = load(base, TEXT)
        cases = key_damages()
        assert len(cases) > 100
        for data in cases:
            after = load(base, data)
            assert after.broken is not None, data
            assert after.registry == before.registry or after.registry.roles == before.registry.roles


@settings(max_examples=examples(100), deadline=None)
@given(text=st.text(max_size=60) | st.binary(max_size=60).map(lambda data: data.decode("latin-1")))
def test_the_reader_agrees_with_the_standard_one_on_arbitrary_text(text: str) -> None:
    try:
        mine = parse(text).value
    except MalformedFileError as error:
        assert error.place >= (1, 1)
        return
    assert json.loads(text) == mine


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.integers(-(10**12), 10**12) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=examples(100), deadline=None)
@given(value=json_values, indent=st.none() | st.integers(0, 3))
def test_whatever_json_writes_is_read_back(value: Any, indent: int | None) -> None:
    assert parse(json.dumps(value, indent=indent)).value == value
