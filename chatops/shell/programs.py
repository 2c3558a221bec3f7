"""Flags of programs that only read. Facts from the manual pages; a flag that is missing here asks."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
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
    numbers: bool = False
    """True if ``-5`` is a number."""
    single_dash_words: bool = False
    """True if flags are whole words (find)."""
    text: bool = False
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
    "echo": Harmless(text=True),
    "true": Harmless(text=True),
    "false": Harmless(text=True),
    "basename": Harmless(text=True),
    "dirname": Harmless(text=True),
    "seq": Harmless(text=True),
    "pwd": Harmless(flags=_letters("LP"), max_operands=_NO_OPERANDS),
    "whoami": Harmless(max_operands=_NO_OPERANDS),
    "uname": Harmless(flags=_letters("asnrvmpio"), max_operands=_NO_OPERANDS),
    "cat": Harmless(
        flags=_letters("AbeEnstTuv") | _words("--number --number-nonblank --show-all --show-ends --squeeze-blank")
    ),
    "tac": Harmless(flags=_letters("br"), valued=_words("-s")),
    "nl": Harmless(flags=_letters("p"), valued=_letters("bdfhilnsvw")),
    "head": Harmless(
        flags=_letters("qvz") | _words("--quiet --verbose"), valued=_words("-n -c --lines --bytes"), numbers=True
    ),
    "tail": Harmless(
        flags=_letters("qvz") | _words("--quiet --verbose"), valued=_words("-n -c --lines --bytes"), numbers=True
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
    "md5sum": _SUMS,
    "sha1sum": _SUMS,
    "sha256sum": _SUMS,
    "sha512sum": _SUMS,
    "grep": _GREP,
    "egrep": _GREP,
    "fgrep": _GREP,
    "rg": _RG,
    "find": _FIND,
    "pytest": _PYTEST,
}
"""Programs that only read, and test runners that run code of the workspace and none from their arguments."""

RUN_WORKSPACE_CODE = frozenset({"pytest"})
"""Those of `PROGRAMS` that run code of the workspace."""

LAUNCHERS: tuple[tuple[str, ...], ...] = (
    ("python", "-m"),
    ("python3", "-m"),
    ("uv", "run"),
    ("poetry", "run"),
)
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
