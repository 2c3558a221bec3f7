"""Words of commands, and the calls that a rule answers."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatops.domain.decisions import ANY_ARGUMENTS, ArgvPattern, ExactArguments, HostPattern, PathPattern
from chatops.domain.errors import ConfigError
from chatops.domain.tools import CallFacts
from chatops.policy.patterns import covers, matches
from chatops.policy.rule_syntax import parse_rule, pattern_from_list, show_rule, suggest_exact, suggest_rules
from chatops.shell.simple_command import simple_words, why_not_simple
from tests.support.cases import for_each

WS = "/home/ana/project"


def shell(command: str, **more: str) -> CallFacts:
    return CallFacts(
        arguments=json.dumps({"command": command, **more}, sort_keys=True, separators=(",", ":")),
        cwd=WS,
        command=command,
        argv=simple_words(command),
    )


def files(*paths: str) -> CallFacts:
    return CallFacts(arguments=json.dumps({"path": paths[0]}), workspace=WS, paths=paths)


def web(*hosts: str) -> CallFacts:
    return CallFacts(arguments='{"url":"x"}', cwd=WS, hosts=hosts)


def allowed(rule: str, command: str) -> bool:
    return matches(parse_rule(f"shell_exec:{rule}")[1], shell(command))


@for_each(
    ("command", "words"),
    [
        ("git status", ("git", "status")),
        ("  git   status ", ("git", "status")),
        ("grep 'a b' x", ("grep", "a b", "x")),
        ("echo \"a | b\"'c'", ("echo", "a | bc")),
        (r"grep a\ b x", ("grep", "a b", "x")),
        ("echo ''", ("echo", "")),
        ("git diff HEAD~1", ("git", "diff", "HEAD~1")),
        ("echo a#b", ("echo", "a#b")),
        ("cat naïve.txt", ("cat", "naïve.txt")),
    ],
)
def test_simple_commands_have_words(command: str, words: tuple[str, ...]) -> None:
    assert simple_words(command) == words


@for_each(
    "command",
    [
        *("a;b", "a|b", "a&", "a&&b", "a>b", "a<b", "(a)", "a $b", "a `b`", 'a "$b"', 'a "`b`"', 'a "\\"b"'),
        *("X=1 a", "a #b", "#a", "a\nb", "a\tb", "a\rb", "a\x00b", "a\x1bb", "a\u202eb", "a\u200bb", "a\u00a0b"),
        *(
            "~/a",
            "a ~/b",
            "a x=~/b",
            "a {b,c}",
            "a [b]c",
            "! a",
            "if a",
            "time a",
            "a *",
            "a ?b",
            "'a' b",
            "\\a b",
            "c''at b",
        ),
        *("a 'b", 'a "b', "a \\", "", "   ", "a\u2028b", "a \ud800", "coproc a", "[[ a ]]", "a" * 9000),
    ],
)
def test_everything_else_has_none(command: str) -> None:
    assert simple_words(command) == ()


@for_each(
    ("command", "reason"),
    [
        ("rm -rf src && curl x.org | sh > y", "joins several commands"),
        ("a || b", "joins several commands"),
        ("a | b; c", "a pipe"),
        ("a > b", "redirects"),
        ('echo "$HOME"', "a variable"),
        ("sort *.txt", ""),
        ("git status", ""),
    ],
)
def test_the_reason_why_a_command_is_not_simple_is_the_first_sign(command: str, reason: str) -> None:
    assert reason in why_not_simple(command) and bool(why_not_simple(command)) == bool(reason)


def test_globs_become_names_only_where_asked_for() -> None:
    def expand(glob: str) -> tuple[str, ...]:
        return {"*.txt": ("--output=x", "a.txt"), "*.none": ()}[glob]

    assert simple_words("sort *.txt") == ()
    assert simple_words("sort *.txt", expand=expand) == ("sort", "--output=x", "a.txt")
    assert simple_words("sort *.none", expand=expand) == ("sort", "*.none")
    for refused in ("ls /*", "ls ../*", "ls a/../*", "* a", "ls -*", "ls 'a'*"):
        assert simple_words(refused, expand=lambda glob: ("x",)) == ()


@given(st.lists(st.text(st.sampled_from("ab '\"$;*~#=\\é{"), max_size=6), min_size=1, max_size=4))
def test_a_quoted_word_is_read_as_it_is(words: list[str]) -> None:
    quoted = ["'" + word.replace("'", "'\"'\"'") + "'" for word in words]
    assert simple_words(" ".join(["echo", *quoted])) == ("echo", *words)


HARMLESS = [
    ("git log *", "git log --oneline -n 5"),
    ("git log *", "git log -5 --since='2 days ago' --format='%h %s: a/b' -- src/a.py"),
    ("git log *", "git log"),
    ("git diff *", "git diff HEAD~1..main --stat src"),
    ("git show *", "git show HEAD:src/a.py"),
    ("git *", "git status --short"),
    ("ls *", "ls -la src"),
    ("ls *", f"ls {WS}/src"),
    ("find *", "find . -type f -name '*.py' -not -path './x/*'"),
    ("grep *", "grep -rn 'a/b' src"),
    ("grep *", "grep -e /etc/x -A 3 a.txt"),
    ("rg *", "rg -n --glob '*.py' foo src"),
    ("sort *", "sort -t: -k2 -u a.txt"),
    ("head *", "head -20 a.txt"),
    ("python3 -m pytest *", "python3 -m pytest -q tests/test_a.py::test_b -k 'a and b' --maxfail=1"),
    ("uv run pytest *", "uv run pytest -x"),
    ("npm run *", "npm run test:unit"),
    ("git status", "git status"),
]


@for_each(("rule", "command"), HARMLESS)
def test_harmless_words_are_allowed(rule: str, command: str) -> None:
    assert allowed(rule, command)


HARMFUL = [
    *(
        ("find *", f"find . {flag} x")
        for flag in "-exec -execdir -ok -okdir -delete -fprint -fprint0 -fls -files0-from".split()
    ),
    *(
        ("find *", command)
        for command in ("find / -name x", "find .. -name x", "find -L . -name x", "find src/../../b")
    ),
    *(
        ("git log *", f"git log {word}")
        for word in "--output=x --output -Ox --ext-diff --textconv --no-index --exec=x --outpu=x".split()
    ),
    ("git diff *", "git diff a.txt ../b.txt"),
    ("git *", "git -c alias.x=!y status"),
    ("git *", "git -C /tmp status"),
    ("git *", "git --exec-path=x status"),
    ("git *", "git config core.pager x"),
    ("git *", "git push origin main"),
    ("git grep *", "git grep --open-files-in-pager=x foo"),
    ("git grep *", "git grep -Ox foo"),
    ("git fetch *", "git fetch --upload-pack=x origin"),
    ("git branch *", "git branch -D main"),
    ("git branch *", "git branch new"),
    ("git config *", "git config core.pager x"),
    ("sort *", "sort -o x a.txt"),
    ("sort *", "sort -uox a.txt"),
    ("sort *", "sort --compress-program=x a.txt"),
    ("sort *", "sort --files0-from=x"),
    ("uniq *", "uniq a.txt b.txt"),
    ("rg *", "rg --pre x foo"),
    ("rg *", "rg --pre=x foo"),
    ("tar *", "tar xf a.tar"),
    ("tar *", "tar --to-command=x -xf a.tar"),
    ("sed *", "sed -n 1,5p a.txt"),
    ("awk *", "awk 1 a.txt"),
    ("env *", "env git status"),
    ("sudo *", "sudo ls"),
    ("xargs *", "xargs ls"),
    ("bash *", "bash a.sh"),
    ("python3 *", "python3 a.py"),
    ("python3.12 *", "python3.12 a.py"),
    ("python3 -m *", "python3 -m pytest"),
    ("python3 -m timeit *", "python3 -m timeit x"),
    ("python3 -m pytest *", "python3 -m pytest -p evil"),
    ("python3 -m pytest *", "python3 -m pytest --basetemp=src"),
    ("python3 -m pytest *", "python3 -m pytest -qc evil.ini"),
    ("python3 -m pytest *", "python3 -m pytest @args"),
    ("python3 -m pytest *", "python3 -m pytest -o addopts=x"),
    ("cat *", "cat /etc/passwd"),
    ("cat *", "cat ../x"),
    ("cat *", "cat src/../../x"),
    ("cat *", "cat '~/x'"),
    ("cat *", "cat .ssh/id_ed25519"),
    ("cat *", "cat .env"),
    ("cat *", "cat src/.env.local"),
    ("cat *", "cat server.pem"),
    ("cat *", "cat tls/id_work"),
    ("cat *", "cat .bash_history"),
    ("cat *", "cat deploy/secrets.yaml"),
    ("cat *", f"cat {WS}-other/x"),
    ("grep *", "grep -f /etc/passwd a.txt"),
    ("grep *", "grep -f/etc/passwd a.txt"),
    ("grep *", "grep -rn x /etc"),
    ("grep *", "grep -e x /etc/passwd"),
    ("grep *", "grep -R x ."),
    ("ls *", "ls -la -- -x"),
    ("ls *", "ls a=/etc"),
    ("make *", "make SHELL=x"),
    ("npm run *", "npm run --script-shell=x a"),
    ("ruff check *", "ruff check --config=x"),
    ("ls *", "/bin/ls"),
    ("ls *", "gls"),
    ("git status", "git status -s"),
    ("git status *", "git"),
]


@for_each(("rule", "command"), HARMFUL)
def test_words_that_run_write_or_leave_are_not(rule: str, command: str) -> None:
    assert not allowed(rule, command)


def test_a_star_alone_means_nothing() -> None:
    assert not matches(ArgvPattern(words=("*",)), shell("ls"))
    assert not matches(ArgvPattern(words=()), shell("ls"))


def test_another_folder_is_another_command() -> None:
    assert matches(ArgvPattern(words=("git", "status")), shell("git status"))
    assert not matches(ArgvPattern(words=("git", "status")), shell("git status", cwd="vendor"))


def test_a_link_that_leads_out_is_seen_through_the_resolved_paths() -> None:
    facts = CallFacts(arguments='{"command":"cat link"}', cwd=WS, argv=("cat", "link"), paths=("/etc/passwd",))
    assert not matches(ArgvPattern(words=("cat", "*")), facts)


@for_each(
    ("glob", "path", "expected"),
    [
        ("src/**", f"{WS}/src/a/b.py", True),
        ("src/**", f"{WS}/src", False),
        ("src/**", f"{WS}/srcs/a", False),
        ("src/*", f"{WS}/src/a/b.py", False),
        ("**/*.py", f"{WS}/a.py", True),
        ("**/*.py", f"{WS}/x/y/a.py", True),
        ("src/**/a.py", f"{WS}/src/a.py", True),
        ("**", f"{WS}/.git/hooks/x", False),
        ("src/**", f"{WS}/src/.env", False),
        (".github/**", f"{WS}/.github/a", True),
        ("a?.txt", f"{WS}/ab.txt", True),
        ("a.txt", f"{WS}/abtxt", False),
        ("[ab].txt", f"{WS}/a.txt", False),
        (f"{WS}/a.txt", f"{WS}/a.txt", True),
        ("/etc/*", "/etc/passwd", True),
        ("src/../a", f"{WS}/src/../a", False),
        ("**", "/etc/passwd", False),
    ],
)
def test_path_globs(glob: str, path: str, expected: bool) -> None:
    assert matches(PathPattern(glob=glob), files(path)) is expected


def test_every_path_and_host_has_to_match_to_permit_and_any_to_restrict() -> None:
    both = files(f"{WS}/src/a", f"{WS}/b")
    assert not matches(PathPattern(glob="src/**"), both) and covers(PathPattern(glob="src/**"), both)
    assert covers(PathPattern(glob="src/**"), files(f"{WS}/src/.env"))
    hosts = web("example.org", "evil.net")
    assert not matches(HostPattern(host="example.org"), hosts) and covers(HostPattern(host="example.org"), hosts)
    assert covers(ArgvPattern(words=("git", "push", "*")), shell("/usr/bin/git push --force"))


@for_each("pattern", [PathPattern(glob="**"), HostPattern(host="*.a.b"), ArgvPattern(words=("ls",))])
def test_missing_facts_never_match(pattern: PathPattern | HostPattern | ArgvPattern) -> None:
    assert not matches(pattern, CallFacts(arguments="{}", cwd=WS))


@for_each(
    ("host", "given_host", "expected"),
    [
        ("example.org", "EXAMPLE.org.", True),
        ("example.org", "www.example.org", False),
        ("example.org", "example.org.evil.net", False),
        ("*.example.org", "www.example.org", True),
        ("*.example.org", "example.org", False),
        ("*.example.org", "evilexample.org", False),
        ("*.example.org", ".example.org", False),
    ],
)
def test_hosts(host: str, given_host: str, expected: bool) -> None:
    assert matches(HostPattern(host=host), web(given_host)) is expected


@for_each(
    "rule",
    [
        *(
            "file_edit",
            "shell_exec:git status *",
            "web_fetch:example.org",
            "web_fetch:*.example.org:8080",
            "file_edit:src/**",
        ),
        *("shell_exec:git log 'a b'", "shell_exec", 'web_search:{"query":"x"}', "mcp__x:a/b"),
    ],
)
def test_rules_are_shown_as_they_are_written(rule: str) -> None:
    assert show_rule(*parse_rule(rule)) == rule


@for_each(
    "rule",
    [
        *(
            "",
            ":x",
            "a b",
            "file_edit:",
            "shell_exec:git status; x",
            "shell_exec:*",
            "shell_exec:./x *",
            "shell_exec:$x",
        ),
        *(
            "shell_exec:find '*'",
            "python_exec:print(1)",
            "web_fetch:*.org",
            "web_fetch:*",
            "web_fetch:http://x",
            "file_edit:../x",
        ),
        *("file_edit:~/x", "file_edit:{", "shell_exec:ls *.txt"),
    ],
)
def test_rules_that_cannot_be_read_say_what_to_write(rule: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_rule(rule)
    assert "file_edit" in caught.value.advice


def test_lists_of_role_rules() -> None:
    assert pattern_from_list("shell_exec", ("git", "*")) == ArgvPattern(words=("git", "*"))
    assert pattern_from_list("file_edit", ("src/**",)) == PathPattern(glob="src/**")
    assert pattern_from_list("web_fetch", ("a.org",)) == HostPattern(host="a.org")
    assert pattern_from_list("file_edit", ()) == ANY_ARGUMENTS
    for tool, match in (
        ("shell_exec", ("*",)),
        ("shell_exec", ("a/b",)),
        ("file_edit", ("a", "b")),
        ("python_exec", ("a",)),
    ):
        with pytest.raises(ConfigError):
            pattern_from_list(tool, match)


SUGGESTED = [
    ("shell_exec", shell("git status -s"), "shell_exec:git status -s", "shell_exec:git status *"),
    ("shell_exec", shell("rm a.txt"), "shell_exec:rm a.txt", "shell_exec:rm a.txt"),
    ("shell_exec", shell("git push --force"), "shell_exec:git push --force", "shell_exec:git push --force"),
    ("shell_exec", shell("cat /etc/hosts"), "shell_exec:cat /etc/hosts", "shell_exec:cat /etc/hosts"),
    ("shell_exec", shell("ls -la"), "shell_exec:ls -la", "shell_exec:ls *"),
    ("file_edit", files(f"{WS}/src/a.py"), f"file_edit:{WS}/src/a.py", "file_edit:src/**"),
    ("file_edit", files(f"{WS}/a.py"), f"file_edit:{WS}/a.py", "file_edit:*.py"),
    ("web_fetch", web("example.org"), "web_fetch:example.org", "web_fetch:example.org"),
]


@for_each(("tool", "facts", "exact", "rule"), SUGGESTED, ids=[case[2] for case in SUGGESTED])
def test_suggestions(tool: str, facts: CallFacts, exact: str, rule: str) -> None:
    assert show_rule(tool, suggest_exact(tool, facts)) == exact
    assert show_rule(tool, suggest_rules(tool, facts)[-1]) == rule


@for_each(
    ("tool", "facts", "offered"),
    [
        ("shell_exec", shell("git status"), ["git status", "git status *"]),
        ("shell_exec", shell("pytest -q"), ["pytest -q", "pytest -q *", "pytest *"]),
        ("shell_exec", shell("python -m pytest"), ["python -m pytest", "python -m pytest *"]),
        ("shell_exec", shell("git commit -m x"), ["git commit -m x"]),
        ("shell_exec", shell("npm test"), ["npm test"]),
        ("shell_exec", shell("mytool build x"), ["mytool build x"]),
        ("shell_exec", shell("mytool"), ["mytool"]),
        ("shell_exec", shell("make test"), ["make test"]),
        ("shell_exec", shell("rm a.txt"), ["rm a.txt"]),
        ("shell_exec", shell("cat /etc/hosts"), ["cat /etc/hosts"]),
        ("shell_exec", shell("git log --output=x"), ["git log --output=x"]),
        ("shell_exec", shell("env X=1 git status"), ["env X=1 git status"]),
        ("shell_exec", shell("sudo git status"), ["sudo git status"]),
        ("shell_exec", shell("xargs git status"), ["xargs git status"]),
        ("shell_exec", shell("sh -c ls"), ["sh -c ls"]),
        ("file_edit", files(f"{WS}/src/a/b.py"), [f"{WS}/src/a/b.py", "src/a/*.py", "src/a/*", "src/a/**"]),
        ("file_edit", files(f"{WS}/b.py"), [f"{WS}/b.py", "*.py"]),
        ("file_edit", files("/elsewhere/b.py"), ["/elsewhere/b.py"]),
        ("file_edit", files(f"{WS}/s*c/b.py"), None),
        ("file_edit", files(f"{WS}/.git/hooks/pre-commit"), None),
        ("web_search", CallFacts(arguments='{"query":"x"}'), ['{"query":"x"}', ""]),
    ],
)  # fmt: skip
def test_rules_are_offered_from_narrow_to_wide(tool: str, facts: CallFacts, offered: list[str] | None) -> None:
    found = suggest_rules(tool, facts)
    assert all(matches(one, facts) for one in found)
    shown = [show_rule(tool, one).removeprefix(tool).removeprefix(":") for one in found]
    if offered is not None:
        assert shown == offered
    assert not any(text in ("*", "**") for text in shown)


def test_arguments_nested_too_deep_are_no_command() -> None:
    facts = CallFacts(arguments='{"x":' + "[" * 100_000, cwd=WS, command="ls", argv=("ls",))
    assert suggest_exact("shell_exec", facts) != ArgvPattern(words=("ls",))
    assert not matches(ArgvPattern(words=("ls",)), facts)


def test_arguments_that_are_null_are_not_there() -> None:
    facts = CallFacts(arguments='{"command":"ls","cwd":null,"timeout_s":5}', cwd=WS, command="ls", argv=("ls",))
    assert suggest_exact("shell_exec", facts) == ArgvPattern(words=("ls",))


@for_each(
    ("tool", "facts"),
    [
        ("shell_exec", shell("git status | cat")),
        ("shell_exec", shell("./run.sh")),
        ("shell_exec", shell("find . -name '*'")),
        ("shell_exec", shell("git status", cwd="vendor")),
        ("file_edit", files(f"{WS}/a*.py")),
        ("file_edit", files(f"{WS}/a ")),
        ("python_exec", CallFacts(arguments='{"code":"1"}', workspace=WS, paths=(f"{WS}/a",))),
        ("web_fetch", web("a.org", "b.org")),
    ],
)
def test_what_cannot_be_written_as_a_pattern_is_remembered_word_for_word(tool: str, facts: CallFacts) -> None:
    assert suggest_exact(tool, facts) == ExactArguments(arguments=facts.arguments)
    assert suggest_rules(tool, facts)[-1] == ExactArguments(arguments=facts.arguments)


command_words = st.lists(
    st.sampled_from(["git", "log", "ls", "-la", "*", "a b", "../x", "-exec", "x'y", "{", "--output=x", "status", ""]),
    min_size=1,
    max_size=4,
)


@pytest.mark.more
@given(command_words)
def test_suggestions_match_their_call_and_can_be_written_down(words: list[str]) -> None:
    command = " ".join([words[0] or "ls", *("'" + word.replace("'", "'\"'\"'") + "'" for word in words[1:])])
    facts = shell(command)
    for pattern in (suggest_exact("shell_exec", facts), *suggest_rules("shell_exec", facts)):
        assert matches(pattern, facts)
        assert parse_rule(show_rule("shell_exec", pattern)) == ("shell_exec", pattern)
    exact = suggest_exact("shell_exec", facts)
    other = shell(command + " extra")
    assert not matches(exact, other)
