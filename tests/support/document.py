"""README.md and the pages in docs/ as data: the blocks that tests execute, found by the comment in front of each."""

import re
from dataclasses import dataclass
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"
DOCS = README.parent / "docs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A line after `$` and what the document shows below it."""

    line: str
    shown: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One thing that the user does: a verb and its object."""

    verb: str
    object: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Action of the user, and the expected screen."""

    actions: tuple[Action, ...]
    shown: tuple[str, ...]


def block(name: str, *, page: Path | None = None) -> list[str]:
    """The lines of the fenced block, or of the table, after ``<!-- name -->`` on a page.

    Without `page`, the only block of that name on any of them. AssertionError if there is none, or several.
    """
    pages = [page] if page is not None else [README, *sorted(DOCS.glob("*.md"))]
    found = [rest for one in pages if (rest := one.read_text(encoding="utf-8").partition(f"<!-- {name} -->\n")[2])]
    assert len(found) == 1, f"{len(found)} pages have a block {name!r}"
    lines = found[0].split("\n")
    if lines[0].startswith("```"):
        return lines[1 : lines.index("```")]
    return lines[: lines.index("")]


def commands(name: str, *, page: Path | None = None) -> list[Command]:
    """The commands of a console block with what is shown below each."""
    found: list[tuple[str, list[str]]] = []
    for line in block(name, page=page):
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return [Command(line=line, shown=tuple(shown)) for line, shown in found]


def rows(name: str, *, page: Path | None = None) -> list[Row]:
    """The steps of a table *you | the screen*."""
    found = []
    for line in block(name, page=page)[2:]:
        you, screen = line.strip().strip("|").split("|")
        actions = [
            Action(verb=verb, object=_code(span))
            for verb, _, span in re.findall(r"(start|send|type|press|kill)[^`]*?(`+)(.+?)\2(?!`)", you)
        ]
        assert actions, f"Nothing is done in this row of the tour: {line}"
        found.append(
            Row(actions=tuple(actions), shown=tuple(_code(s) for _, s in re.findall(r"(`+)(.+?)\1(?!`)", screen)))
        )
    return found


def links(*, page: Path = README) -> list[str]:
    """Targets of the links and pictures that point into the repository."""
    targets = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
    return [target for target in targets if "://" not in target]


def expected(shown: tuple[str, ...], known: dict[str, str]) -> re.Pattern[str]:
    """The pattern of an output: `…` is any text, a lone `…` any lines, CALL, GATE, SESSION and DIGEST are ids.

    An id that is not in `known` is a named group where it stands first.
    """
    parts = []
    named: set[str] = set()
    for line in shown:
        if line.strip() == "…":
            parts.append(r"(?:.*\n)*?")
            continue
        pattern = re.escape(line.rstrip()).replace("…", ".*?")
        for name in ("CALL", "GATE", "SESSION", "DIGEST"):
            if name in known:
                pattern = pattern.replace(name, re.escape(known[name]))
            elif name in pattern:
                first = rf"(?P<{name}>\\S+)" if name not in named else rf"(?P={name})"
                pattern = re.sub(name, first, pattern, count=1)
                named.add(name)
        parts.append(pattern + r"[ ]*\n")
    return re.compile("".join(parts))


def _code(span: str) -> str:
    """A code span's text: one blank at each end belongs to the notation if there are two."""
    return span[1:-1] if span.startswith(" ") and span.endswith(" ") else span.removesuffix(" ")
