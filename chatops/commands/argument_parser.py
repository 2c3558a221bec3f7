"""argparse with errors that say what was meant, and with optional words that may come after the flags."""

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

# All help is English, and `Parser.error` reads argparse's messages. Looking for translations on the disk, for each
# parser, takes longer than everything else.
argparse._ = lambda text: text  # type: ignore[attr-defined]


class Parser(argparse.ArgumentParser):
    """The parser of chatops and of each of its commands. Errors end it with exit code 2."""

    _takes_prompt = False
    """True if ``-p`` is among the arguments. It takes the argument after it as the prompt."""
    _words: Sequence[str] = ()
    """The arguments being parsed, which `error` looks at again."""
    last_word: str | None = None
    """Name of the optional argument that comes last; None without one."""
    actions: "argparse._SubParsersAction[Parser] | None" = None
    """The subcommands, one of which is required, if there are any. ``list`` is the default where it exists."""

    def add_last_word(self, name: str, *, metavar: str, help: str | None = None) -> None:
        """Add an optional argument that may also come after the flags."""
        self.add_argument(name, metavar=metavar, nargs="?", help=help)
        self.last_word = name

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse as argparse does, but let the command itself report arguments that are left over.

        argparse before 3.13 takes an optional positional argument for absent at the first flag, and leaves it over.
        """
        self._words = sys.argv[1:] if args is None else args
        self._takes_prompt = not {*self._words}.isdisjoint({"-p", "--print"})
        parsed, rest = super().parse_known_args(self._with_default_action(args), namespace)
        if not rest:
            return parsed, []
        follows_dashes = rest[0] == "--"
        words = rest[1:] if follows_dashes else rest
        # After -- a word may begin with a dash.
        is_one_word = len(words) == 1 and (follows_dashes or not words[0].startswith("-"))
        if is_one_word and self.last_word and getattr(parsed, self.last_word) is None:
            setattr(parsed, self.last_word, words[0])
            return parsed, []
        if unknown := self._unknown_option(rest):
            self.error(unknown)
        needs_quotes = self.last_word and not any(word.startswith("-") for word in rest)
        hint = ". Words that belong together go in quotes" if needs_quotes else ""
        self.error(f"unrecognized arguments: {' '.join(rest)}{hint}")

    def are_all_options(self, words: Sequence[str]) -> bool:
        """Return True if `words` are options of this parser with their values, and none asks for help."""
        remaining = iter(words)
        for word in remaining:
            option = self._option_string_actions.get(word)
            if option is None or option.dest == "help":
                return False
            if option.nargs == 0:
                continue
            value = next(remaining, None)
            if value is None:
                return option.nargs == "?"
            if value.startswith("-"):
                return False
        return True

    def _with_default_action(self, args: Sequence[str] | None) -> Sequence[str] | None:
        """Return `args` with ``list`` before them if they are empty, or begin with a flag and name no action."""
        if args is None or self.actions is None or "list" not in self.actions.choices:
            return args
        first = args[0] if args else "--"
        lists = first.startswith("-") and not {*args} & {"-h", "--help", *self.actions.choices}
        return ["list", *args] if lists else args

    def error(self, message: str) -> NoReturn:
        """Print the error and where to find help. For an unknown command, suggest the nearest one."""
        choice = re.match(r"argument (?:COMMAND|ACTION): invalid choice: '(.*?)' \(choose from (.*)\)", message, re.S)
        if choice:
            message = self._explain_unknown_command(choice[1])
        elif message.endswith("required: ACTION"):
            message = f"one of these has to follow: {', '.join(self._action_names())}"
        text = message.encode("utf-8", "backslashreplace").decode()
        text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
        self._print_message(f"{self.prog}: {text}\n{self.prog} --help shows how it is used.\n", sys.stderr)
        raise SystemExit(2)

    def _explain_unknown_command(self, name: str) -> str:
        """Return what is wrong with a command line that has `name` in place of a command or an action."""
        if unknown := self._unknown_option([*takewhile(lambda word: word != name, self._words)]):
            return unknown
        is_top = self.prog == "chatops"
        if is_top and self._takes_prompt:
            return "the prompt is the argument of -p and follows it: chatops --role ROLE -p PROMPT."
        if near := _nearest(name, self._action_names()):
            return f"there is no command {name!r}. Did you mean {self.prog} {near}?"
        names = f"There are: {', '.join(self._action_names())}."
        advice = "To send a message without the screen: chatops -p PROMPT." if is_top else names
        return f"there is no command {name!r}. {advice}"

    def _unknown_option(self, words: Sequence[str]) -> str:
        """Return a sentence about the first option in `words` that does not exist; empty if all do."""
        names = [word.partition("=")[0] for word in words if word.startswith("--") and word != "--"]
        unknown = next((name for name in names if name not in self._option_string_actions), "")
        if not unknown:
            return ""
        near = _nearest(unknown, self._option_string_actions)
        return f"there is no option {unknown}." + (f" Did you mean {near}?" if near else "")

    def _print_message(self, message: str, file: "SupportsWrite[str] | None" = None) -> None:
        """Print to the process's own streams. argparse would not notice if they are closed."""
        from chatops.headless.screen import screen

        view = screen()
        if file is sys.stdout:
            view.answer(message)
        else:
            view.say(message)

    def _action_names(self) -> list[str]:
        return [*self.actions.choices] if self.actions else []


def _nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word that was probably meant; empty if none is near."""
    from difflib import get_close_matches  # only errors need it

    return next(iter(get_close_matches(word, [*known], n=1, cutoff=0.6)), "")
