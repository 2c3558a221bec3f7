"""Hostile commands that the user approves, as cases of the corpus: each tries to get out of its sandbox.

``policy.sandbox`` is the registry's ``sandbox``.
"""

from typing import Any

from tests.attacks.command_cases import a_case

_HOSTS = {"hosts": ["example.org", "*.example.org", "127.0.0.1:1"]}
_COMMIT = {"git": "commit"}
_SECOND = "\\r\\n\\r\\nGET / HTTP/1.0\\r\\n\\r\\n"


def sandbox_cases() -> list[dict[str, Any]]:
    """The cases."""
    asked = [
        ("an inner address", "CONNECT 127.0.0.1:{PORT} HTTP/1.1"),
        ("an inner address, mapped to IPv6", "CONNECT [::ffff:127.0.0.1]:{PORT} HTTP/1.1"),
        ("an inner address as a number", "CONNECT 2130706433:{PORT} HTTP/1.1"),
        ("the address of any interface", "CONNECT 0.0.0.0:{PORT} HTTP/1.1"),
        ("a local name", "CONNECT localhost:{PORT} HTTP/1.1"),
        ("another port of a named host", "CONNECT example.org:25 HTTP/1.1"),
        ("a name that ends like a named one", "CONNECT evilexample.org:443 HTTP/1.1"),
        ("a NUL in the name", "CONNECT 127.0.0.1:{PORT}\\0.example.org:443 HTTP/1.1"),
        ("a user part that looks like a named host", "GET http://example.org@127.0.0.1:{PORT}/ HTTP/1.1"),
        ("a Host header of another place", "GET / HTTP/1.1\\r\\nHost: 127.0.0.1:{PORT}"),
        (
            "a second request behind the length",
            "GET http://127.0.0.1:{PORT}/ HTTP/1.1\\r\\nContent-Length: 1\\r\\nContent-Length: 9",
        ),
    ]
    ways_out: list[tuple[str, str, dict[str, Any], str]] = [
        ("past the proxy", "exec 3<>/dev/tcp/127.0.0.1/{PORT}; echo GET / >&3", _HOSTS, "I-NONET"),
        ("past the proxy without its variables", "env -i python3 -c '{FETCH}'", _HOSTS, "I-NONET"),
        ("a hook under commit", "mkdir -p .git/hooks; echo x > .git/hooks/pre-commit", _COMMIT, "I-GIT-CONFIG"),
        ("hooksPath under commit", "git config core.hooksPath PWNED", _COMMIT, "I-GIT-CONFIG"),
        ("hooksPath by renaming", "mv .git .g; cp -r .g .git; echo PWNED >> .git/config", _COMMIT, "I-GIT-CONFIG"),
        ("commondir under commit", "mkdir e; echo PWNED >e/config; echo ../e >.git/commondir", _COMMIT, "I-GIT-CONFIG"),
        ("a variable that holds the key", "echo key=$OPENAI_API_KEY", {"env": ["OPENAI_API_KEY"]}, "I-ENV"),
        ("git of the workspace", "PATH=$PWD/bin:$PATH git config a.b PWNED", _COMMIT, "I-GIT-CONFIG"),
    ]  # fmt: skip
    fetch = 'import urllib.request as u; u.urlopen("http://127.0.0.1:{PORT}/", timeout=2)'
    cases = [
        *(
            _case(
                f"the proxy is asked for {about}",
                f"exec 3<>/dev/tcp/127.0.0.1/3128; printf '{request}{_SECOND}' >&3; cat <&3",
                _HOSTS,
                "I-NONET",
            )
            for about, request in asked
        ),
        *(
            _case(about, command.replace("{FETCH}", fetch), sandbox, invariant)
            for about, command, sandbox, invariant in ways_out
        ),
    ]
    return [{"id": f"SAND-{number:03}", **case} for number, case in enumerate(cases, 1)]


def _case(about: str, command: str, sandbox: dict[str, Any], invariant: str) -> dict[str, Any]:
    case = a_case(f"approved, in the sandbox: {about}", command)
    case["policy"] |= {"answer": "approve", "sandbox": sandbox}
    invariants = [invariant, "I-NOEXEC", "I-NO-NEW-OUTSIDE", "I-CANARY-READ"]
    return {**case, "class": "sandbox", "invariants": invariants, "sandbox_required": True}
