"""Remembered rules: the scope that each may have, and the calls that none answers."""

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from chatops.domain.decisions import (
    ANY_ARGUMENTS,
    ArgumentPattern,
    ArgvPattern,
    ExactArguments,
    PathPattern,
    RememberedRule,
    RuleScope,
)
from chatops.domain.ids import CallId
from chatops.domain.model import ModelTarget
from chatops.domain.tools import BUILT_IN_TOOLS, AccessLevel, CallFacts, ToolSpec, Verdict
from chatops.policy.grant import Grant, explain
from chatops.policy.remembered import SCOPES, widest_scope
from chatops.policy.verdicts import Layer
from tests.support.cases import for_each

HERE = "7:11:/ws"
SHELL = ToolSpec(name="shell_exec", description="", schema="{}", capabilities=BUILT_IN_TOOLS["shell_exec"])
EDIT = ToolSpec(name="file_edit", description="", schema="{}", capabilities=BUILT_IN_TOOLS["file_edit"])
ASKS = Layer(name="tool default", rules=(), default=Verdict.ASK)


def grant(role: str = "coder", *, scopes: tuple[RuleScope, ...] = SCOPES) -> Grant:
    return Grant(
        role=role,
        level=AccessLevel.OPERATOR,
        models=(ModelTarget(name="m"),),
        prompt="",
        tools=(SHELL, EDIT),
        layers=(ASKS,),
        rule_scopes=scopes,
    )


def command(text: str, **more: object) -> CallFacts:
    facts = CallFacts(
        arguments=f'{{"command":"{text}"}}',
        command=text,
        argv=tuple(text.split()),
        cwd="/ws",
        workspace="/ws",
        folder=HERE,
        definition="d",
        sandboxed=True,
    )
    return replace(facts, **more)  # type: ignore[arg-type]


def rule(pattern: ArgumentPattern, scope: RuleScope, tool: str = "shell_exec", **more: object) -> RememberedRule:
    folder = HERE if scope is RuleScope.FOLDER else ""
    made = RememberedRule(
        role="coder",
        tool=tool,
        pattern=pattern,
        source_call=CallId("c"),
        scope=scope,
        folder=folder,
        definition="d",
        uid=1,
        id="5",
    )
    return replace(made, **more)  # type: ignore[arg-type]


@for_each(
    ("facts", "widest"),
    [
        (command("git status"), RuleScope.ROLE),
        (command("grep -n x src/a.py"), RuleScope.ROLE),
        (command("pytest -q"), RuleScope.FOLDER),
        (command("python -m pytest"), RuleScope.FOLDER),
        (command("uv run ls"), RuleScope.FOLDER),
        (command("make test"), RuleScope.FOLDER),
        (command("npm test"), RuleScope.FOLDER),
        (command("find . -exec sh {} +"), RuleScope.FOLDER),
        (command("cat ../x"), RuleScope.FOLDER),
        (command("git status", sandboxed=False), RuleScope.SESSION),
        (command("pytest -q", sandboxed=False), RuleScope.SESSION),
        (command("cat a", paths=("/etc/shadow",)), RuleScope.SESSION),
        (command("cat a", paths=("/ws/.env",)), RuleScope.SESSION),
        (command("git status | sh", argv=()), RuleScope.SESSION),
        (command("git status", caution="git may do more."), RuleScope.SESSION),
        (command("rg x", reveals="rg can read a key."), RuleScope.SESSION),
    ],
)
def test_the_widest_scope_follows_from_what_a_command_could_run(facts: CallFacts, widest: RuleScope) -> None:
    scope, reason = widest_scope(SHELL.capabilities, facts)
    assert scope is widest
    assert bool(reason) is (widest is not RuleScope.ROLE)


def test_a_rule_for_files_may_hold_everywhere() -> None:
    facts = CallFacts(arguments="{}", paths=("/ws/src/a.py",), workspace="/ws", folder=HERE, definition="d")
    made = rule(PathPattern(glob="src/*"), RuleScope.ROLE, tool="file_edit")
    assert grant().why_not_made(made, facts) == ""
    elsewhere = replace(facts, folder="8:11:/other", workspace="/other", paths=("/other/src/b.py",))
    assert grant().judge("file_edit", elsewhere, remembered=[made]).verdict is Verdict.ALLOW


@for_each(
    ("held", "facts", "why"),
    [
        (grant(), command("pytest -q", folder="7:12:/ws"), "another folder"),
        (grant(), command("pytest -q", folder=""), "another folder"),
        (grant(), command("pytest -q", definition="e"), "the tool has changed"),
        (grant(), command("pytest -q", definition=""), "the tool has changed"),
        (grant(), command("pytest -q", sandboxed=False), "without a sandbox"),
        (grant(), command("pytest -q", repairs=("a brace was closed",)), "repaired"),
        (grant(), command("pytest -q", needs_user="by hand only"), "by hand only"),
        (grant(scopes=(RuleScope.SESSION,)), command("pytest -q"), "switches off"),
        (grant(scopes=()), command("pytest -q"), "switches off"),
    ],
)
def test_a_rule_that_does_not_answer_is_named_with_the_reason(held: Grant, facts: CallFacts, why: str) -> None:
    made = rule(ArgvPattern(words=("pytest", "-q")), RuleScope.FOLDER)
    assert grant().judge("shell_exec", command("pytest -q"), remembered=[made]).rule == made
    judged = held.judge("shell_exec", facts, remembered=[made])
    assert judged.verdict is Verdict.ASK and judged.rule is None
    assert "rule 5 does not apply: " in judged.why and why in judged.why
    assert any(why in line for line in explain(held, "shell_exec", facts, remembered=[made]))


def test_another_role_has_nothing_of_a_rule() -> None:
    made = rule(ArgvPattern(words=("git", "status")), RuleScope.ROLE)
    assert grant("reviewer").judge("shell_exec", command("git status"), remembered=[made]).verdict is Verdict.ASK


def test_nothing_answers_a_deny() -> None:
    closed = grant().narrowed(Layer(name="site", rules=(), default=Verdict.DENY))
    made = rule(ArgvPattern(words=("git", "status")), RuleScope.ROLE)
    assert closed.judge("shell_exec", command("git status"), remembered=[made]).verdict is Verdict.DENY


@for_each(
    ("words", "text", "why"),
    [
        (("make", "*"), "make", "can run other programs"),
        (("env", "*"), "env", "can run other programs"),
        (("python", "*"), "python", "can run other programs"),
        (("npm", "*"), "npm test", "name its first argument"),
        (("*",), "ls", "does not match"),
        (("git", "status"), "git log", "does not match"),
    ],
)
def test_a_pattern_that_lets_arguments_run_programs_is_no_rule(words: tuple[str, ...], text: str, why: str) -> None:
    reason = grant().why_not_made(rule(ArgvPattern(words=words), RuleScope.SESSION), command(text))
    assert why in reason


# Properties: whatever the rule and the call are, a rule never answers beyond its scope.

COMMANDS = st.sampled_from(
    [
        "git status", "git log -p", "git -c core.pager=sh log", "pytest -q", "pytest -q -p evil", "ls -la", "cat ../x",
        "cat /etc/passwd", "env X=1 git status", "sudo git status", "xargs git status", "sh -c ls", "make", "npm test",
        "mytool build", "find . -delete", "uv run ls", "sort -o a b",
    ]
)  # fmt: skip
PATTERNS = st.one_of(
    COMMANDS.map(lambda text: ArgvPattern(words=tuple(text.split()))),
    COMMANDS.map(lambda text: ArgvPattern(words=(*text.split(), "*"))),
    COMMANDS.map(lambda text: ArgvPattern(words=(text.split()[0], "*"))),
    COMMANDS.map(lambda text: ExactArguments(arguments=f'{{"command":"{text}"}}')),
    st.just(ANY_ARGUMENTS),
)
FACTS = st.builds(
    command,
    COMMANDS,
    sandboxed=st.booleans(),
    folder=st.sampled_from(["", HERE, "9:9:/ws"]),
    definition=st.sampled_from(["", "d", "e"]),
    repairs=st.sampled_from([(), ("r",)]),
    needs_user=st.sampled_from(["", "n"]),
    caution=st.sampled_from(["", "c"]),
    reveals=st.sampled_from(["", "r"]),
    paths=st.sampled_from([(), ("/ws/a",), ("/etc/x",), ("/ws/.ssh/id",)]),
)
RULES = st.builds(
    rule,
    PATTERNS,
    st.sampled_from(list(RuleScope)),
    role=st.sampled_from(["coder", "reviewer"]),
    tool=st.sampled_from(["shell_exec", "file_edit"]),
    definition=st.sampled_from(["", "d"]),
)


@example(rule(ArgvPattern(words=("ls", "-la")), RuleScope.FOLDER), command("ls -la", folder="9:9:/ws"), {*RuleScope})
@example(rule(ArgvPattern(words=("ls", "-la")), RuleScope.ROLE), command("ls -la"), {RuleScope.SESSION})
@given(made=RULES, facts=FACTS, scopes=st.sets(st.sampled_from(list(RuleScope))))
def test_a_rule_never_answers_beyond_its_scope(made: RememberedRule, facts: CallFacts, scopes: set[RuleScope]) -> None:
    held = grant(scopes=tuple(scopes))
    judged = held.judge("shell_exec", facts, remembered=[made])
    if judged.verdict is not Verdict.ALLOW:
        return
    assert judged.rule is made
    assert (made.role, made.tool) == ("coder", "shell_exec") and made.scope in scopes
    assert not facts.repairs and not facts.needs_user
    if made.scope is RuleScope.SESSION:
        return
    assert facts.sandboxed and facts.definition == "d" and made.definition == "d"
    assert not facts.caution and not facts.reveals and "/etc/x" not in facts.paths
    if made.scope is RuleScope.FOLDER:
        assert facts.folder == made.folder == HERE
    else:
        assert facts.argv[0] in ("git", "ls") and facts.argv[1] != "-c"


@given(made=RULES, facts=FACTS, scopes=st.sets(st.sampled_from(list(RuleScope))))
def test_what_could_not_be_made_never_answers_its_own_call(
    made: RememberedRule, facts: CallFacts, scopes: set[RuleScope]
) -> None:
    held = grant(scopes=tuple(scopes))
    if held.why_not_made(made, facts) == "" and made.role == "coder" and made.tool == "shell_exec":
        assert held.judge("shell_exec", facts, remembered=[made]).rule is made
    if held.judge("shell_exec", facts, remembered=[made]).rule is made:
        # Only a pattern that nobody is offered, or one that came from another call, may answer and not be made.
        assert held.why_not_made(made, facts) == "" or "argument" in held.why_not_made(made, facts)


def test_a_glob_answers_for_no_file_that_runs_later_and_none_with_a_caution() -> None:
    def edit(path: str, **more: object) -> CallFacts:
        facts = CallFacts(arguments="{}", paths=(f"/ws/{path}",), workspace="/ws", folder=HERE, definition="d")
        return replace(facts, **more)  # type: ignore[arg-type]

    everywhere = rule(PathPattern(glob="src/**"), RuleScope.SESSION, tool="file_edit")
    for path in ("src/a.py", "src/deep/b.py"):
        assert grant().judge("file_edit", edit(path), remembered=(everywhere,)).verdict is Verdict.ALLOW
    refused = (
        *("src/conftest.py", "src/Makefile", "src/MAKEFILE", "src/package.json", "src/x.pth", "src/Dockerfile"),
        *("src/Dockerfile.dev", "src/rules.mk", "src/CMakeLists.txt", "src/vite.config.ts", "src/compose.yaml"),
    )
    for facts in (*map(edit, refused), edit("src/a.py", caution="It may hold keys."), edit("src/a", repairs=("x",))):
        judged = grant().judge("file_edit", facts, remembered=(everywhere,))
        assert judged.verdict is Verdict.ASK and "does not apply: " in judged.why
    itself = rule(PathPattern(glob="/ws/src/Makefile"), RuleScope.SESSION, tool="file_edit")
    assert grant().judge("file_edit", edit("src/Makefile"), remembered=(itself,)).verdict is Verdict.ALLOW
