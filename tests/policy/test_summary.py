"""What a role may do, in words."""

from dataclasses import replace

from chatops.domain.sandbox import SandboxSpec
from chatops.domain.tools import AccessLevel, ToolSpec, Verdict
from chatops.policy.registry import RoleRule, RoleSpec
from chatops.policy.summary import rights_in_words
from tests.policy.test_grant import ALL, grant, registry
from tests.support.cases import for_each

FOREIGN = ToolSpec(name="tides__high", description="", schema="{}", source="tides", min_access=AccessLevel.VIEWER)


def words(*tools: str, level: AccessLevel | None = None, **role: object) -> str:
    spec = RoleSpec(name="coder", tools=tools, **role)  # type: ignore[arg-type]
    return " · ".join(rights_in_words(grant(registry(spec), cap=level)))


@for_each(
    ("tools", "expected"),
    [
        ((), "no tools"),
        (("file_read",), "reads files · no network"),
        (("file_read", "file_edit", "shell_exec"), "reads files · asks before edits and commands · no network"),
        (("web_search",), "searches the web"),
        (("file_read", "web_search", "web_fetch"), "reads files and searches the web · asks before web pages"),
        (("shell_exec", "web_fetch"), "asks before commands and web pages · commands without network"),
        (("python_exec",), "asks before code · no network"),
        (ALL, "reads files and searches the web · asks before edits, commands, code and web pages"
         " · commands without network"),
    ],
)  # fmt: skip
def test_a_role_is_told_in_clauses(tools: tuple[str, ...], expected: str) -> None:
    assert words(*tools) == expected


def test_what_the_user_may_not_have_is_not_named() -> None:
    assert words(*ALL, level=AccessLevel.VIEWER) == "reads files · no network"


def test_what_a_rule_of_the_role_makes_stricter_asks() -> None:
    asks = RoleRule(tool="file_read", verdict=Verdict.ASK)
    assert words("file_read", rules=(asks,)) == "asks before reading files · no network"


def test_what_a_rule_of_the_role_answers_is_not_promised_to_ask() -> None:
    allows = RoleRule(tool="shell_exec", verdict=Verdict.ALLOW, match=("git", "status", "*"))
    assert words("file_edit", "shell_exec", rules=(allows,)) == "asks before edits and most commands · no network"


def test_the_sandbox_decides_how_far_commands_reach() -> None:
    coder = grant(registry(RoleSpec(name="coder", tools=("shell_exec",))))
    for sandbox, reach in (
        (SandboxSpec(), "no network"),
        (SandboxSpec(hosts=("a.example", "b.example")), "commands reach 2 hosts"),
        (SandboxSpec(network=True), "commands reach the network"),
    ):
        assert rights_in_words(replace(coder, sandbox=sandbox))[-1] == reach


def test_tools_of_others_are_counted_and_nothing_is_promised_of_them() -> None:
    reader = grant(registry(RoleSpec(name="coder", tools=("file_read",))))
    both = replace(reader, tools=(*reader.tools, FOREIGN, replace(FOREIGN, name="tides__low", verdict=Verdict.ALLOW)))
    told = rights_in_words(both)
    assert "no network" not in told and any("other tool" in clause for clause in told)


def test_a_contained_role_says_so_first() -> None:
    assert words("file_edit", contain=True).startswith("works on a copy · ")
