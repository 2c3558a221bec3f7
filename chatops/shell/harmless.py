"""Words that a trailing ``*`` of an argv pattern may stand for: they only read, and only inside the workspace.

Flags are listed by what is known to be harmless, never by what is known to be dangerous: options grow with every
release, and GNU programs accept abbreviations. A flag that is not listed asks. Programs that run what their arguments
say (wrappers, interpreters, editors) have no harmless arguments at all.

The flags of each program are facts from its manual pages.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.names import is_secret, may_hold_secrets

_INTERPRETER = re.compile(r"(?:python|pypy|perl|ruby|lua|php|node|nodejs|tclsh|wish|Rscript|guile|sh|bash)[0-9.]*")
_OTHER_INTERPRETERS = frozenset("dash zsh ksh csh tcsh fish source . deno bun".split())
_PLAIN_WORD = re.compile(r"[\w.][\w./+%,:~^-]*")
_QUIET_FLAGS = frozenset({"-q", "--quiet", "-v", "--verbose", "--version", "--help"})
_NUMBER_FLAG = re.compile(r"-[0-9]{1,9}")
_RESPONSE_FILE = re.compile(r"@(?![~^{]|$)")
"""``@FILE`` makes many programs read further arguments; git's ``@`` and ``@~1`` do not."""
_SEPARATORS = re.compile(r"[/:=,@]")
_SETTINGS_FOLDERS = frozenset({".docker", ".config", ".git", ".chatops"})
"""Folders of settings, which may include credentials."""


@frozen_dataclass
class Harmless:
    """The harmless part of a program's command line."""

    flags: frozenset[str] = frozenset()
    """Flags without a value; long names in full."""
    valued: frozenset[str] = frozenset()
    """Flags with a value, attached or as the next word."""
    optional_valued: frozenset[str] = frozenset()
    """Flags whose value, if any, is attached."""
    text_values: frozenset[str] = frozenset()
    """Flags whose value is text and never a file."""
    pattern_flags: frozenset[str] = frozenset()
    """Flags that replace the leading text operand."""
    text_operands: int = 0
    """Number of leading operands that are text and not files."""
    max_operands: int | None = None
    """None: any number."""
    numbers: bool = False
    """True if ``-5`` is a number."""
    single_dash_words: bool = False
    """True if flags are whole words (find)."""
    prints_only: bool = False
    """True for a program that prints its arguments and touches nothing."""


def _letters(letters: str) -> frozenset[str]:
    return frozenset(f"-{letter}" for letter in letters)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_DIFF_FLAGS = _letters("pubwRaszqiM") | _words(
    "--patch --no-patch --stat --numstat --shortstat --dirstat --summary --name-only --name-status --check --raw"
    " --ignore-all-space --ignore-space-change --ignore-blank-lines --ignore-space-at-eol --minimal --patience"
    " --histogram --no-renames --find-renames --find-copies --cached --staged --merge-base --word-diff --color-words"
    " --no-color --color --no-ext-diff --no-textconv --full-index --binary --exit-code --quiet --text"
    " --function-context --no-prefix --patch-with-stat --compact-summary"
)
_DIFF_VALUED = _words("-U --unified --diff-filter -S -G --inter-hunk-context --diff-algorithm -l")
_DIFF_OPTIONAL = _words("--stat --word-diff --color --abbrev --find-renames --find-copies --dirstat")
_LOG_FLAGS = _DIFF_FLAGS | _words(
    "--oneline --graph --all --branches --tags --remotes --decorate --no-decorate --merges --no-merges --first-parent"
    " --reverse --follow --topo-order --date-order --abbrev-commit --no-abbrev-commit --cc -c -m --no-walk --source"
    " --left-right --cherry-pick --cherry-mark --boundary --relative-date --parents --children"
    " --no-notes --walk-reflogs -g -E -F -P --regexp-ignore-case --extended-regexp --fixed-strings --invert-grep"
)
_LOG_VALUED = _DIFF_VALUED | _words(
    "-n --max-count --skip --since --until --after --before --author --committer --grep --date -L"
)
_LOG_OPTIONAL = _DIFF_OPTIONAL | _words("--format --pretty --decorate --branches --tags")
_LOG_TEXT = _words(
    "-S -G --since --until --after --before --author --committer --grep --date --format --pretty --diff-filter"
)
_LOG = Harmless(
    flags=_LOG_FLAGS, valued=_LOG_VALUED, optional_valued=_LOG_OPTIONAL, text_values=_LOG_TEXT, numbers=True
)
_NO_OPERANDS = 0

GIT: dict[str, Harmless] = {
    "status": Harmless(
        flags=_letters("sbvuz") | _words("--short --branch --long --verbose --porcelain --ignored --show-stash"),
        optional_valued=_words("--porcelain --untracked-files --ignored --column"),
    ),
    "log": _LOG,
    "show": _LOG,
    "shortlog": Harmless(flags=_letters("nse") | _words("--summary --numbered --email"), numbers=True),
    "diff": Harmless(
        flags=_DIFF_FLAGS,
        valued=_DIFF_VALUED,
        optional_valued=_DIFF_OPTIONAL,
        text_values=_words("-S -G --diff-filter"),
    ),
    "blame": Harmless(flags=_letters("westlfnCM") | _words("--show-name --show-number"), valued=_words("-L --since")),
    "rev-parse": Harmless(
        flags=_words("--abbrev-ref --short --verify --show-toplevel --is-inside-work-tree --show-prefix --quiet -q"),
        optional_valued=_words("--short --abbrev-ref"),
    ),
    "rev-list": Harmless(flags=_words("--count --all --max-parents --first-parent"), valued=_words("-n --max-count")),
    "ls-files": Harmless(
        flags=_letters("cdmoiskutvz") | _words("--cached --deleted --modified --others --exclude-standard --stage")
    ),
    "ls-tree": Harmless(flags=_letters("drtlz") | _words("--name-only --name-status --full-name --full-tree --long")),
    "describe": Harmless(flags=_words("--tags --all --always --long --dirty --contains --exact-match")),
    "merge-base": Harmless(flags=_words("--all -a --is-ancestor --fork-point")),
    "branch": Harmless(
        flags=_letters("arv") | _words("--all --remotes --verbose --list --show-current --no-color"),
        max_operands=_NO_OPERANDS,
    ),
    "tag": Harmless(flags=_words("-l --list -n"), max_operands=_NO_OPERANDS),
    "remote": Harmless(flags=_words("-v --verbose"), max_operands=_NO_OPERANDS),
    "grep": Harmless(
        flags=_letters("niwlcEFPvhLIaqor")
        | _words("--line-number --ignore-case --count --files-with-matches --cached"),
        valued=_words("-e -A -B -C -m"),
        text_values=_words("-e"),
        pattern_flags=_words("-e"),
        text_operands=1,
    ),
}
"""Sub-commands of git that only read."""

_GREP = Harmless(
    flags=_letters("niwlcEFGPvhHLIaqorszxbUTy")
    | _words(
        "--line-number --ignore-case --count --files-with-matches --files-without-match --recursive --invert-match"
        " --word-regexp --line-regexp --extended-regexp --fixed-strings --perl-regexp --basic-regexp --no-messages"
        " --only-matching --with-filename --no-filename --null --text --quiet --silent"
        " --no-ignore-case"
    ),
    valued=_words(
        "-e -f -A -B -C -m --regexp --file --after-context --before-context --context --max-count --include --exclude"
        " --exclude-dir --exclude-from"
    ),
    optional_valued=_words("--color --colour"),
    text_values=_words("-e --regexp --include --exclude --exclude-dir"),
    pattern_flags=_words("-e -f --regexp --file"),
    text_operands=1,
    numbers=True,
)
_RG = Harmless(
    flags=_letters("niwlcFPvHIaqosSNUux0")
    | _words(
        "--line-number --no-line-number --ignore-case --smart-case --count --count-matches --files --hidden --no-ignore"
        " --files-with-matches --files-without-match --fixed-strings --pcre2 --invert-match --word-regexp --heading"
        " --no-heading --only-matching --multiline --json --stats --vimgrep --case-sensitive --trim --column"
    ),
    valued=_words(
        "-e -A -B -C -m -g -t -T --regexp --glob --iglob --type --type-not --max-count --max-depth --context"
    ),
    optional_valued=_words("--color --sort --sortr"),
    text_values=_words("-e --regexp -g --glob --iglob"),
    pattern_flags=_words("-e --regexp --files"),
    text_operands=1,
)
_FIND = Harmless(
    single_dash_words=True,
    flags=_words(
        "-print -print0 -ls -empty -xdev -mount -depth -daystart -readable -writable -executable -not -a -and"
        " -o -or -prune -quit -true -false -P -noleaf -nouser -nogroup"
    ),
    valued=_words(
        "-name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -type -xtype -size -mtime -atime"
        " -ctime -mmin -amin -cmin -newer -anewer -cnewer -maxdepth -mindepth -perm -user -group -uid -gid -links -inum"
        " -samefile -lname -ilname -printf"
    ),
    text_values=_words(
        "-name -iname -path -ipath -wholename -iwholename -regex -iregex -lname -ilname -printf -size -mtime"
    ),
)
_PYTEST = Harmless(
    flags=_letters("qvxslh")
    | _words(
        "--quiet --verbose --exitfirst --lf --last-failed --ff --failed-first --nf --new-first --co --collect-only"
        " --showlocals --no-header --no-summary --stepwise --sw --fixtures --markers --strict-markers --strict-config"
        " --disable-warnings --cache-show --setup-show --help --version"
    ),
    valued=_words("-k -m -r --maxfail --tb --durations --durations-min --color --capture --show-capture --verbosity"),
    text_values=_words("-k -m"),
)
_SUMS = Harmless(flags=_letters("btzw") | _words("--quiet --status --text --binary --tag"))

PROGRAMS: dict[str, Harmless] = {
    **dict.fromkeys("echo true false basename dirname seq".split(), Harmless(prints_only=True)),
    "pwd": Harmless(flags=_letters("LP"), max_operands=_NO_OPERANDS),
    "whoami": Harmless(max_operands=_NO_OPERANDS),
    "uname": Harmless(flags=_letters("asnrvmpio"), max_operands=_NO_OPERANDS),
    "cat": Harmless(
        flags=_letters("AbeEnstTuv") | _words("--number --number-nonblank --show-all --show-ends --squeeze-blank")
    ),
    "tac": Harmless(flags=_letters("br"), valued=_words("-s")),
    "nl": Harmless(flags=_letters("p"), valued=_letters("bdfhilnsvw")),
    **dict.fromkeys(
        ("head", "tail"),
        Harmless(
            flags=_letters("qvz") | _words("--quiet --verbose"), valued=_words("-n -c --lines --bytes"), numbers=True
        ),
    ),
    "wc": Harmless(flags=_letters("clmLw") | _words("--bytes --chars --lines --words --max-line-length")),
    "ls": Harmless(
        flags=_letters("aAbBcCdfFgGhHiklLmnNopqQrRsStuUvxXZ1")
        | _words(
            "--all --almost-all --human-readable --recursive --reverse --size --directory --inode --full-time"
            " --group-directories-first --numeric-uid-gid --si --classify --file-type"
        ),
        valued=_words("-I -w --ignore --hide --width"),
        optional_valued=_words("--color --sort --time --time-style --format --indicator-style"),
    ),
    "tree": Harmless(flags=_letters("adfghipsuDFNQrtx"), valued=_words("-L -I -P"), text_values=_words("-I -P")),
    "stat": Harmless(flags=_letters("Lft"), valued=_words("-c --format --printf"), text_values=_words("-c --format")),
    "file": Harmless(flags=_letters("bhikNnpr") | _words("--brief --mime --mime-type --mime-encoding")),
    "du": Harmless(
        flags=_letters("abchkmsSx0") | _words("--all --human-readable --summarize --total"),
        valued=_words("-d --max-depth"),
    ),
    "df": Harmless(flags=_letters("ahHiklPT") | _words("--human-readable --total")),
    "sort": Harmless(
        flags=_letters("bcCdfghiMmnRrsuVz")
        | _words("--reverse --unique --numeric-sort --ignore-case --human-numeric-sort --version-sort --stable"),
        valued=_words("-k -t --key --field-separator"),
        text_values=_words("-t --field-separator"),
    ),
    "uniq": Harmless(
        flags=_letters("cdiuz") | _words("--count --repeated --unique --ignore-case"),
        valued=_letters("fsw"),
        max_operands=1,
    ),
    "cut": Harmless(
        flags=_letters("sz") | _words("--complement --only-delimited"),
        valued=_words("-b -c -d -f --bytes --characters --delimiter --fields --output-delimiter"),
        text_values=_words("-d --delimiter --output-delimiter"),
    ),
    "diff": Harmless(
        flags=_letters("abBdeEHinpqstTuwyN") | _words("--brief --unified --side-by-side --ignore-case"),
        valued=_words("-U -C -W -x --exclude --unified --width"),
        optional_valued=_words("--color"),
    ),
    "cmp": Harmless(flags=_letters("bls"), valued=_letters("in")),
    "comm": Harmless(flags=_letters("123z")),
    **dict.fromkeys(("md5sum", "sha1sum", "sha256sum", "sha512sum"), _SUMS),
    **dict.fromkeys(("grep", "egrep", "fgrep"), _GREP),
    "rg": _RG,
    "find": _FIND,
    "pytest": _PYTEST,
}
"""Programs that only read, and test runners that run code of the workspace and none from their arguments."""

RUN_WORKSPACE_CODE = frozenset({"pytest"})
"""Those of `PROGRAMS` that run code of the workspace."""

LAUNCHERS: tuple[tuple[str, ...], ...] = (("python", "-m"), ("python3", "-m"), ("uv", "run"), ("poetry", "run"))
"""Words that start the program named after them."""

MODULES = frozenset({"pytest"})
"""Modules allowed after ``python -m``; most others run what their arguments say."""

RUNS_ITS_ARGUMENTS = _words(
    "sudo su doas runuser env nice ionice chrt taskset nohup setsid setarch stdbuf timeout time xargs parallel watch"
    " script flock chroot unshare nsenter bwrap strace ltrace gdb lldb valgrind perf expect busybox toybox"
    " command builtin exec eval source . trap alias export declare typeset enable set coproc nocorrect"
    " sh bash dash zsh ksh csh tcsh fish ash awk gawk mawk nawk sed gsed ed ex vi vim nvim view emacs nano pico less"
    " more man info jq yq bc dc m4 make gmake ninja cmake tar bsdtar cpio zip unzip 7z ar rsync ssh scp sftp mosh"
    " telnet nc ncat netcat socat curl wget aria2c openssl gpg dd tee install crontab at batch systemd-run systemctl"
    " docker podman nerdctl kubectl helm ansible terraform vagrant npx bunx pnpx uvx pipx pip pip3 gem deno bun uv"
    " poetry tmux screen dbus-run-session start-stop-daemon ip sysctl mount hg svn fzf entr rlwrap unbuffer"
    " run-parts ld.so osascript open xdg-open ln printenv"
)
"""Programs whose arguments are programs, program text, or places to write or send to."""


def is_credential_word(word: str) -> bool:
    """Return True if a word names a place where secrets usually are, or git's own folder."""
    parts = [part.casefold() for part in _SEPARATORS.split(word)]
    return is_secret(parts) or any(part in _SETTINGS_FOLDERS or may_hold_secrets((part,)) for part in parts)


def is_inside(word: str, *, cwd: str) -> bool:
    """Return True if no part of a word leaves the folder `cwd`: absolute parts only below it, no ``..``, no ``~``."""
    if word.startswith("~") or _RESPONSE_FILE.match(word) or ".." in _SEPARATORS.split(word):
        return False
    if is_credential_word(word):
        return False
    below = cwd.rstrip("/")
    if word.startswith("/"):
        return bool(below) and (word == below or word.startswith(f"{below}/"))
    return not any(mark in word for mark in ("=/", ":/", ",/", "@/", "=~", ":~"))


def harmless_tail(*, prefix: Sequence[str], tail: Sequence[str], cwd: str) -> bool:
    """Return True if `tail` is harmless after the words `prefix` that a user has written out.

    `prefix` holds at least the program. An empty tail is harmless: the user has named every word.
    """
    if not tail:
        return True
    words = launched(tuple(prefix))
    if not words:
        return False
    name = words[0]
    if name == "git":
        return _harmless_for_git(words[1:], tail, cwd=cwd)
    if name in RUNS_ITS_ARGUMENTS or _INTERPRETER.fullmatch(name):
        return False
    program = PROGRAMS.get(name)
    if program is None:
        return all(_is_plain(word, cwd=cwd) for word in tail)
    return _is_harmless_for(program, tail, cwd=cwd)


def is_interpreter(name: str) -> bool:
    """Return True if a program of this name runs the file given as its first argument."""
    return _INTERPRETER.fullmatch(name) is not None or name in _OTHER_INTERPRETERS


def reader_word_count(argv: Sequence[str]) -> int:
    """Return how many leading words name a program (and its sub-command) that is known to only read; 0: none."""
    reader = _known_reader(argv)
    return 0 if reader is None else reader.word_count


@frozen_dataclass
class _Reader:
    """A program, or a sub-command of git, that is known to only read."""

    program: Harmless
    word_count: int
    """Number of leading words of the command that name it."""


def _known_reader(argv: Sequence[str]) -> _Reader | None:
    words = launched(tuple(argv))
    named, programs = (words[1:], GIT) if words[:1] == ("git",) else (words, PROGRAMS)
    if not named or named[0] not in programs:
        return None
    return _Reader(program=programs[named[0]], word_count=len(argv) - len(named) + 1)


def runs_its_arguments(argv: Sequence[str]) -> bool:
    """Return True if the program is known to run what its arguments say, or if it cannot be told which one it is."""
    words = launched(tuple(argv))
    return not words or words[0] in RUNS_ITS_ARGUMENTS or is_interpreter(words[0])


def runs_no_workspace_code(argv: Sequence[str], *, cwd: str) -> bool:
    """Return True if this command is known not to run any file in the folder `cwd`, whatever the folder holds.

    Launchers count as unknown, because ``uv run`` builds the project that it is in.
    """
    known, words = reader_word_count(argv), tuple(argv)
    if not known or launched(words) != words or words[0] in RUN_WORKSPACE_CODE:
        return False
    return harmless_tail(prefix=words[:known], tail=words[known:], cwd=cwd)


def file_words(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the words that a known reader takes as files: operands, and values of its flags, also attached ones."""
    reader = _known_reader(argv)
    if reader is None or reader.program.prints_only:
        return ()
    arguments = _Arguments(program=reader.program)
    arguments.read(argv[reader.word_count :])
    return (*arguments.operands, *arguments.values)


def launched(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the program that the leading launchers start, with its words; empty if that cannot be told."""
    while launcher := next((start for start in LAUNCHERS if words[: len(start)] == start), None):
        words = words[len(launcher) :]
        if launcher[-1] == "-m" and (not words or words[0] not in MODULES):
            return ()
    return words


def _harmless_for_git(words: Sequence[str], tail: Sequence[str], *, cwd: str) -> bool:
    """Return True if `tail` is harmless for git.

    Options before the sub-command configure git itself, so the sub-command has to come first.
    """
    command, tail = (words[0], tail) if words else (tail[0], tail[1:])
    program = GIT.get(command)
    return program is not None and _is_harmless_for(program, tail, cwd=cwd)


def _is_plain(word: str, *, cwd: str) -> bool:
    """Return True for a word that a program is unlikely to take for more than a name."""
    if word in _QUIET_FLAGS:
        return True
    is_name = _PLAIN_WORD.fullmatch(word) is not None and "::" not in word and "//" not in word
    return is_name and is_inside(word, cwd=cwd)


def _is_harmless_for(program: Harmless, tail: Sequence[str], *, cwd: str) -> bool:
    """Return True if every flag in `tail` is listed for the program, and every operand and value stays inside `cwd`."""
    arguments = _Arguments(program=program)
    return program.prints_only or (arguments.read(tail) and arguments.stay_inside(cwd))


@dataclass(kw_only=True)
class _Arguments:
    """Arguments as getopt would read them, with the flags that `program` lists."""

    program: Harmless
    operands: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    """Values of flags, other than those that are text."""
    pattern_given: bool = False
    """True if a flag gives the pattern, which is the first operand otherwise."""

    def read(self, words: Sequence[str]) -> bool:
        """Read arguments up to the first flag that is not listed. Return True if all are."""
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if word == "--":
                if any(later.startswith("-") for later in rest):
                    return False
                self.operands.extend(rest)
                return True
            if not word.startswith("-") or word == "-":
                self.operands.append(word)
            elif not self._read_flag(word, rest):
                return False
        return True

    def stay_inside(self, cwd: str) -> bool:
        """Return True if there are no more operands than the program takes, and all that may be a file is in `cwd`."""
        most = self.program.max_operands
        if most is not None and len(self.operands) > most:
            return False
        texts = 0 if self.pattern_given else self.program.text_operands
        files = self.operands[texts:] + self.values
        return all(word == "-" or is_inside(word, cwd=cwd) for word in files)

    def _read_flag(self, word: str, rest: list[str]) -> bool:
        """Read a flag, and its value from `rest`. Return False if it is not listed, or lacks its value."""
        if self.program.single_dash_words:
            return self._take_value(word, rest) if word in self.program.valued else word in self.program.flags
        if _NUMBER_FLAG.fullmatch(word):
            return self.program.numbers
        if word.startswith("--"):
            name, has_value, value = word.partition("=")
            return self._read_long(name, value if has_value else None, rest)
        return self._read_letters(word[1:], rest)

    def _read_long(self, name: str, value: str | None, rest: list[str]) -> bool:
        program = self.program
        if name in program.flags and value is None:
            return True
        if name not in program.valued and name not in program.optional_valued:
            return False
        if value is None:
            return name in program.optional_valued or self._take_value(name, rest)
        self._keep_value(name, value)
        return True

    def _read_letters(self, letters: str, rest: list[str]) -> bool:
        for position, letter in enumerate(letters):
            flag, remainder = f"-{letter}", letters[position + 1 :]
            if flag in self.program.optional_valued:
                self._keep_value(flag, remainder)
                return True
            if flag in self.program.valued:
                if not remainder:
                    return self._take_value(flag, rest)
                self._keep_value(flag, remainder)
                return True
            if flag not in self.program.flags:
                return False
        return True

    def _take_value(self, flag: str, rest: list[str]) -> bool:
        # A value that looks like a flag is refused: a program with other rules would parse it as a flag.
        if not rest or rest[0].startswith("-"):
            return False
        self._keep_value(flag, rest.pop(0))
        return True

    def _keep_value(self, flag: str, value: str) -> None:
        self.pattern_given = self.pattern_given or flag in self.program.pattern_flags
        if flag not in self.program.text_values:
            self.values.append(value)
