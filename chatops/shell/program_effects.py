"""Effects of well-known programs (what they write, delete, contact, need and load), from their manual pages.

The dialog shows them before an approval. A program that is missing here is shown by its words alone, so a gap in a
table hides nothing and permits nothing.
"""

import re
from collections.abc import Iterator, Sequence

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.shell.grammar import Word
from chatops.shell.harmless import GIT, PROGRAMS, runs_its_arguments, runs_no_workspace_code

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Programs that run another one

WRAPPERS: dict[str, tuple[int, frozenset[str]]] = {
    "sudo": (0, _words("-u -g -h -p -C -T -R -D -r -t --user --group")),
    "doas": (0, _words("-u -C")),
    "runuser": (0, _words("-u -g")),
    "pkexec": (0, _words("--user")),
    "env": (0, _words("-u -C --unset --chdir")),
    "nice": (0, _words("-n --adjustment")),
    "ionice": (0, _words("-c -n -p")),
    "timeout": (1, _words("-s -k --signal --kill-after")),
    "time": (0, _words("-o -f --output --format")),
    "nohup": (0, frozenset()),
    "setsid": (0, frozenset()),
    "stdbuf": (0, _words("-i -o -e")),
    "taskset": (1, frozenset()),
    "chroot": (1, frozenset()),
    "flock": (1, _words("-w -E")),
    "xargs": (0, _words("-I -n -P -L -d -a -E -s --max-args --max-procs --replace")),
    "strace": (0, _words("-e -o -p -s -f")),
    "command": (0, frozenset()),
    "builtin": (0, frozenset()),
    "exec": (0, _words("-a")),
    "npx": (0, _words("-p --package")),
    "uvx": (0, _words("--from --with -p")),
    "busybox": (0, frozenset()),
    "toybox": (0, frozenset()),
}
"""Programs whose operands are a program: how many operands precede it, and the flags that take the next word."""
SUB_WRAPPERS = frozenset({("uv", "run"), ("poetry", "run"), ("hatch", "run"), ("pdm", "run"), ("rye", "run")})
PRIVILEGED = _words("sudo su doas runuser pkexec")
SHELLS = _words("sh bash rbash dash zsh ksh mksh ash csh tcsh")
_SHELL_VALUED = _words("--rcfile --init-file")
JOINS_TEXT: dict[str, frozenset[str]] = {
    "eval": frozenset(),
    "watch": _words("-n --interval -q --equexit"),
    "parallel": _words(
        "-j --jobs -a --arg-file -d --delimiter -n --max-args -N -L -l -I -C --colsep -S --sshlogin --joblog --delay"
        " --retries --timeout --tmpdir --results --workdir --wd --tagstring --halt -P --max-procs --nice --memfree"
    ),
}
"""Programs that join their operands to the text of a shell command, and their flags that take the next word."""
_TAKES_TEXT = {
    **dict.fromkeys(("python", "pypy"), ("c", "WXmQ", frozenset[str]())),
    "perl": ("eE", "IMmFxD", frozenset[str]()),
    "ruby": ("e", "IrCEFTWx", frozenset[str]()),
    "lua": ("e", "l", frozenset[str]()),
    **dict.fromkeys(("node", "nodejs"), ("ep", "rC", _words("--eval --print"))),
    "php": ("rBRE", "dcSt", _words("--run --process-begin --process-code --process-end")),
    "fish": ("cC", "do", _words("--command --init-command")),
    **dict.fromkeys(("su", "runuser", "script", "flock"), ("c", "gGsuTEIOBotw", _words("--command --session-command"))),
}
"""Programs with a flag whose value they run: its letters, the letters of other flags with a value, its long names."""
_SHELL_TEXT = SHELLS | _words("eval watch parallel fish su runuser script flock")
_OPERANDS_FIRST = _words("su runuser script flock")
"""Programs of `_TAKES_TEXT` whose flags may follow an operand."""

# What programs do to files

DELETES = _words("rm rmdir shred unlink truncate wipefs mkfs srm")
WRITES_OPERANDS = _words("rm rmdir shred unlink truncate touch mkdir tee chmod chown chgrp patch")
WRITES_LAST = _words("cp mv ln install rsync scp")
OUTPUT_FLAGS: dict[str, frozenset[str]] = {
    "curl": _words("-o --output --output-dir -D --dump-header -c --cookie-jar"),
    "wget": _words("-O --output-document -P --directory-prefix -o --output-file"),
    "sort": _words("-o --output"),
    "openssl": _words("-out -keyout"),
    "pandoc": _words("-o --output"),
    "go": _words("-o"),
    "tar": _words("-C --directory"),
    "unzip": _words("-d"),
    **dict.fromkeys("gcc cc clang g++ c++ clang++ ld rustc tcc".split(), _words("-o")),
}
"""Flags of programs whose value is a file that they write."""
FILE_VALUED: dict[str, frozenset[str]] = {
    "touch": _words("-d -r -t"),
    "truncate": _words("-s -r"),
    "mkdir": _words("-m"),
}
"""Flags with a value of those programs, so that a value is not taken for an operand."""
FIRST_IS_NO_FILE = _words("chmod chown chgrp")

# git

GIT_VALUED = _words("-C -c --git-dir --work-tree --namespace")
GIT_COMMITS = _words(
    "add am apply bisect branch checkout cherry-pick clean commit fetch gc merge mv notes pull push rebase replace"
    " reset restore revert rm stash switch tag update-index update-ref maintenance sparse-checkout"
)
"""Sub-commands that write objects, refs or the index below ``.git``."""
GIT_CONFIGURES = _words("clone config init remote submodule worktree lfs")
"""Sub-commands that write the configuration or hooks."""
GIT_NETWORK = _words("clone fetch pull push ls-remote")
GIT_DISCARDS: dict[str, frozenset[str]] = {
    "push": _words("-f --force --force-with-lease --mirror --delete -d --prune"),
    "reset": _words("--hard --merge --keep"),
    "clean": _words("-f -d -x -fd -df -fdx -xdf --force"),
    "checkout": _words("-f --force -- ."),
    "restore": _words("."),
    "branch": _words("-D -d --delete -f"),
    "tag": _words("-d --delete -f"),
    "stash": _words("drop clear"),
}
"""Words after a sub-command with which it discards work."""

# The network

FETCHES = _words("curl wget aria2c http https xh lynx")
REACHES_OUT = _words("ssh scp sftp mosh telnet nc ncat netcat socat ftp ping dig nslookup host traceroute whois rsync")
HOST_FIRST = _words("ssh mosh telnet nc ncat netcat ftp ping dig nslookup host traceroute")
"""Programs whose first operand is a host."""
NETWORK_VALUED = _words("-p -i -l -o -F -J -L -R -D -b -c -e -W -w -s -q -P")
PACKAGE_MANAGERS = _words(
    "pip pip3 pipx uv uvx poetry pdm hatch rye npm npx pnpm bun yarn cargo go gem bundle composer docker podman apt"
    " apt-get dnf apk brew"
)
PACKAGE_VERBS = _words(
    "install i ci add download fetch get pull push publish update upgrade sync lock wheel search audit outdated create"
    " build tidy self-update login dlx"
)
"""Sub-commands of package managers that need the network."""
PACKAGE_RUNNERS = _words("npx uvx")

# Files that programs load from the folder


@frozen_dataclass(kw_only=False)
class Loads:
    """Files that a program loads by itself from its folder."""

    names: tuple[str, ...]
    upwards: bool = False
    """True if it looks for them in the folders above too."""
    tests: bool = False
    """True if it loads every ``conftest.py`` on its way."""


_PYTHON = ("pyproject.toml", "setup.cfg", "setup.py")
_NODE = ("package.json", ".npmrc", "tsconfig.json")
_PYTEST = Loads(("pytest.ini", ".pytest.ini", *_PYTHON, "tox.ini", "conftest.py"), upwards=True, tests=True)
_HOOKS = (
    "pre-commit prepare-commit-msg commit-msg post-commit pre-push post-checkout post-merge pre-rebase post-rewrite"
    " pre-merge-commit reference-transaction applypatch-msg pre-applypatch post-applypatch fsmonitor-watchman"
).split()
_MAKE = Loads(("GNUmakefile", "makefile", "Makefile"))

LOADS: dict[str, Loads] = {
    **dict.fromkeys(("make", "gmake"), _MAKE),
    **dict.fromkeys(("pytest", "py.test"), _PYTEST),
    **dict.fromkeys("npm npx pnpm yarn bun".split(), Loads(_NODE, upwards=True)),
    **dict.fromkeys(("node", "nodejs"), Loads(("package.json",), upwards=True)),
    **dict.fromkeys(("pip", "pip3"), Loads((*_PYTHON, "requirements.txt", "constraints.txt"))),
    **dict.fromkeys("uv poetry pdm hatch rye".split(), Loads((*_PYTHON, "uv.toml", "poetry.toml"), upwards=True)),
    "tox": Loads(("tox.ini", *_PYTHON)),
    "nox": Loads(("noxfile.py",)),
    "invoke": Loads(("tasks.py",)),
    "git": Loads((".git/config", ".gitattributes", *(f".git/hooks/{name}" for name in _HOOKS)), upwards=True),
    "just": Loads(("justfile", "Justfile", ".justfile"), upwards=True),
    "task": Loads(("Taskfile.yml", "Taskfile.yaml", "taskfile.yml"), upwards=True),
    "pre-commit": Loads((".pre-commit-config.yaml",), upwards=True),
    "ruff": Loads(("ruff.toml", ".ruff.toml", "pyproject.toml"), upwards=True),
    "mypy": Loads(("mypy.ini", ".mypy.ini", "pyproject.toml", "setup.cfg")),
    "black": Loads(("pyproject.toml",), upwards=True),
    "coverage": Loads((".coveragerc", "setup.cfg", "tox.ini", "pyproject.toml")),
    "tsc": Loads(("tsconfig.json",), upwards=True),
    "jest": Loads(("jest.config.js", "jest.config.ts", "jest.config.mjs", "package.json"), upwards=True),
    "vitest": Loads(("vitest.config.ts", "vitest.config.js", "vite.config.ts", "vite.config.js"), upwards=True),
    "vite": Loads(("vite.config.ts", "vite.config.js", "vite.config.mjs")),
    "eslint": Loads(("eslint.config.js", "eslint.config.mjs", ".eslintrc.js", ".eslintrc.json", ".eslintrc.cjs")),
    "prettier": Loads((".prettierrc", "prettier.config.js", "package.json")),
    "webpack": Loads(("webpack.config.js",)),
    "cargo": Loads(("Cargo.toml", "build.rs", ".cargo/config.toml", "rust-toolchain.toml"), upwards=True),
    "go": Loads(("go.mod", "go.work"), upwards=True),
    "rake": Loads(("Rakefile", "rakefile"), upwards=True),
    "bundle": Loads(("Gemfile",), upwards=True),
    "composer": Loads(("composer.json",)),
    "cmake": Loads(("CMakeLists.txt", "CMakePresets.json")),
    "ctest": Loads(("CTestTestfile.cmake",)),
    "ninja": Loads(("build.ninja",)),
    "meson": Loads(("meson.build",)),
    "bazel": Loads(("WORKSPACE", "MODULE.bazel", ".bazelrc"), upwards=True),
    "mvn": Loads(("pom.xml", ".mvn/maven.config", ".mvn/extensions.xml")),
    "gradle": Loads(("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts")),
    "ant": Loads(("build.xml",)),
    "docker": Loads(("Dockerfile", "compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml")),
    "podman": Loads(("Containerfile", "Dockerfile")),
    "docker-compose": Loads(("compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml")),
    "terraform": Loads(("main.tf", ".terraform.lock.hcl")),
    "vagrant": Loads(("Vagrantfile",)),
    "ansible-playbook": Loads(("ansible.cfg",)),
    "direnv": Loads((".envrc",), upwards=True),
    "sphinx-build": Loads(("conf.py",)),
    "mkdocs": Loads(("mkdocs.yml",)),
    "alembic": Loads(("alembic.ini",)),
    "django-admin": Loads(("manage.py",)),
}
"""Programs that run what files of the folder say, and the files that they read first.

Programs load further files from these. The dialog says so, because an approval cannot be bound to all of them.
"""

LOADS_NOTHING = _words(
    "cp mv mkdir rmdir rm touch chmod chown ln tee truncate sleep date env printenv id hostname which type test ["
    " printf cd export unset set read true false kill wait tr expr getconf nproc uptime free ps gzip gunzip xz"
    " bzip2 zip unzip tar base64 xxd od hexdump strings readlink realpath mktemp yes paste join fold column rev"
    " curl wget ssh scp ping sudo doas timeout nice nohup xargs time command sed jq"
)
"""Programs that run no file of the folder by themselves, besides those in `harmless.PROGRAMS`."""


# Reading arguments


def operands_of(argv: Sequence[str], valued: frozenset[str]) -> list[str]:
    """Return the words after the program that are neither flags nor their values."""
    operands: list[str] = []
    words = list(argv[1:])
    while words:
        word = words.pop(0)
        if word == "--":
            return [*operands, *words]
        if word in valued:
            words[:1] = []
        elif not word.startswith("-") or word == "-":
            operands.append(word)
    return operands


def after_git_options(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words after ``git`` without the flags before the sub-command."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in GIT_VALUED else 1
    return tuple(words[at:])


def flag_values(argv: Sequence[str], flags: frozenset[str]) -> Iterator[str]:
    """Yield the values of `flags`, which may be attached."""
    for position, word in enumerate(argv):
        name, has_value, value = word.partition("=")
        ends_in_flag = word[:1] == "-" and word[1:].isalpha() and f"-{word[-1]}" in flags
        if word in flags or ends_in_flag:
            yield from argv[position + 1 : position + 2]
        elif has_value and name in flags:
            yield value
        elif word[:2] in flags and not word.startswith("--") and len(word) > 2:
            yield word[2:]


def changes_in_place(word: str) -> bool:
    """Return True if this flag of sed or perl makes it change its operands."""
    return word.startswith("--in-place") or (word.startswith("-") and not word.startswith("--") and "i" in word)


def creates_archive(word: str) -> bool:
    """Return True if this first word after ``tar`` makes it write the file that follows."""
    return not word.startswith("--") and "f" in word and any(letter in word for letter in "cru")


def program_text(name: str, words: Sequence[Word]) -> Word | None:
    """Return the word whose text this program runs; None if it runs no text.

    The text of the word is None if only the running shell knows it, or if the words do not say which one it is.
    """
    if name in JOINS_TEXT:
        return _join_operands(name, words)
    if name in SHELLS:
        return _shell_text(words)
    base = name.rstrip("0123456789.")
    return _flag_text(words, *_TAKES_TEXT[base], anywhere=base in _OPERANDS_FIRST) if base in _TAKES_TEXT else None


def runs_shell_text(name: str) -> bool:
    """Return True if the text that a program runs, see `program_text`, is a shell command."""
    return name in _SHELL_TEXT


def _unknown(words: Sequence[Word]) -> Word:
    return Word(None, "", (words[0].span[0], words[-1].span[1]))


def _word_at(words: Sequence[Word], at: int) -> Word:
    return words[at] if at < len(words) else _unknown(words)


def _join_operands(name: str, words: Sequence[Word]) -> Word | None:
    """Return the operands as one text. Those after ``:::`` are commands only if no command precedes it."""
    rest = list(words[1:])
    while rest and rest[0].text is not None and rest[0].text.startswith("-") and name != "eval":
        last = rest[0].text == "--"
        rest = rest[2:] if rest[0].text in JOINS_TEXT[name] else rest[1:]
        if last:
            break
    glue = " "
    if name == "parallel":
        at = next((at for at, word in enumerate(rest) if (word.text or "").startswith(":::")), len(rest))
        rest, glue = (rest[:at], " ") if at else (rest[1:], "; ")
        if not rest:
            # It reads the commands from its input.
            return _unknown(words)
    if not rest:
        return None
    if any(word.text is None for word in rest):
        return _unknown(rest)
    return Word(glue.join(word.text or "" for word in rest), "", (rest[0].span[0], rest[-1].span[1]))


def _shell_text(words: Sequence[Word]) -> Word | None:
    """Return the text after ``-c``: the first word after all options."""
    has_text, at = False, 1
    while at < len(words):
        option = words[at].text
        if option is None:
            return _unknown(words)
        if option in ("-", "--") or option[:1] not in ("-", "+"):
            at += 1 if option in ("-", "--") else 0
            break
        at += 1
        if option.startswith("--"):
            at += 1 if option in _SHELL_VALUED else 0
        else:
            has_text = has_text or "c" in option
            # Each -o and -O takes a word.
            at += option.lower().count("o")
    return _word_at(words, at) if has_text else None


def _flag_text(words: Sequence[Word], flags: str, valued: str, long: frozenset[str], *, anywhere: bool) -> Word | None:
    """Return the value of one of `flags`, which may be attached and stand in a cluster."""
    at = 1
    while at < len(words):
        word, option = words[at], words[at].text
        at += 1
        if option is None:
            return _unknown(words)
        if option == "--" or not option.startswith("-") or option == "-":
            if anywhere and option != "--":
                continue
            return None
        if option.startswith("--"):
            name, attached, value = option.partition("=")
            if name in long:
                return Word(value, "", word.span) if attached else _word_at(words, at)
            continue
        index = next((index for index, letter in enumerate(option) if letter in flags + valued), None)
        if index is None:
            continue
        letter, value = option[index], option[index + 1 :]
        if letter in flags:
            return Word(value, "", word.span) if value else _word_at(words, at)
        # With -m the words that follow are those of a module.
        if letter == "m" and not anywhere:
            return None
        at += 0 if value else 1
    return None


def runs_a_file(argv: Sequence[str]) -> bool:
    """Return True if an interpreter is given a file to run, so that it does not run its input."""
    return any(not word.startswith("-") for word in argv[1:]) and "-s" not in argv[1:]


def started_words(name: str, words: Sequence[Word]) -> Sequence[Word]:
    """Return the words of the program that a wrapper starts; empty if it starts none."""
    if name == "find":
        starts = [at for at, word in enumerate(words) if word.text in ("-exec", "-execdir", "-ok", "-okdir")]
        inner = words[starts[0] + 1 :] if starts else ()
        ends = [at for at, word in enumerate(inner) if word.text in (";", "+")]
        return inner[: ends[0]] if ends else inner
    if len(words) > 2 and (name, words[1].text) in SUB_WRAPPERS:
        operands, valued, rest = 0, frozenset[str](), words[2:]
    elif name in WRAPPERS:
        (operands, valued), rest = WRAPPERS[name], words[1:]
    else:
        return ()
    if name == "command" and rest and rest[0].text in ("-v", "-V"):
        return ()
    while rest:
        text = rest[0].text or ""
        if text == "--":
            rest = rest[1:]
            break
        if text in valued:
            rest = rest[2:]
        elif text.startswith("-") and (text != "-" or name == "env"):
            rest = rest[1:]
        elif name in ("env", "sudo", "doas", "time") and _ASSIGNMENT.fullmatch(text):
            rest = rest[1:]
        else:
            break
    return rest[operands:]


def changes_settings(verb: str, words: Sequence[str]) -> bool:
    """Return False for those uses of a sub-command of git that only show settings, or make another repository."""
    if verb in ("config", "remote", "submodule", "worktree"):
        return len(words) > 1 and not {"--get", "--list", "-l", "-v", "list", "show", "get", "get-url"} & set(words[1:])
    return verb not in ("clone", "init") or len(words) == 1


def changes_repository(verb: str, words: Sequence[str]) -> bool:
    """Return False for those uses of a sub-command of git that only list."""
    if verb in ("branch", "tag", "stash", "notes"):
        listing = {"-l", "--list", "-a", "-r", "-v", "-vv", "--show-current", "list", "show", "-n"}
        return not listing & set(words[1:]) and (len(words) > 1 or verb == "stash")
    return "--dry-run" not in words and not (verb == "clean" and "-n" in words)


def may_run_code(argv: Sequence[str], *, cwd: str) -> bool:
    """Return True unless this command is known to run no file of the folder `cwd`."""
    if runs_no_workspace_code(argv, cwd=cwd):
        return False
    return argv[0] not in LOADS_NOTHING or runs_its_arguments(argv)


def loads_nothing(name: str, argv: Sequence[str]) -> bool:
    """Return True if a program is known to load no file of the working folder unless its arguments name one."""
    if name == "git":
        words = after_git_options(argv[1:])
        return bool(words) and words[0] in GIT
    known = name in PROGRAMS or name in LOADS_NOTHING
    return known and name not in LOADS
