"""Personas: ``personas/*.md``, a front matter with a description, then the text. They grant no rights."""

import re
from dataclasses import dataclass
from pathlib import Path

from chatops.config.paths import Paths, packaged_file

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_KNOWN = frozenset({"name", "description"})
MAX_BYTES = 64_000
_FENCE = "---"
_PLAIN = re.compile(r"name: [a-z]{6,}|description: [A-Za-z][A-Za-z ,;()'-]* [a-z]+\.")
"""A line of front matter whose value is text in YAML, whatever the words are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Persona:
    """A persona: one layer of the system prompt."""

    name: str
    description: str
    text: str
    source: str
    """The file that it comes from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Personas:
    """All personas, and warnings about files that cannot be used as they are."""

    found: tuple[Persona, ...]
    warnings: tuple[str, ...]

    def get(self, name: str) -> Persona | None:
        """Return the persona of that name, or None."""
        return next((persona for persona in self.found if persona.name == name), None)


def load_personas(paths: Paths) -> Personas:
    """Load the packaged personas and the user's own, which replace those of the same name. Never raises."""
    found: dict[str, Persona] = {}
    warnings: list[str] = []
    for folder in (packaged_file("personas"), paths.personas):
        try:
            files = sorted(folder.glob("*.md")) if folder.is_dir() else []
        except OSError as error:
            warnings.append(f"The personas in {folder} cannot be read: {error.strerror or error}.")
            continue
        for file in files:
            persona, problems = _read(file)
            warnings.extend(f"Persona {file}: {problem}" for problem in problems)
            if persona is not None:
                found[persona.name] = persona
    ordered = sorted(found.values(), key=lambda persona: (persona.name != "default", persona.name))
    return Personas(found=tuple(ordered), warnings=tuple(warnings))


def _read(file: Path) -> tuple[Persona | None, list[str]]:
    try:
        with file.open("rb") as handle:
            data = handle.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            return None, [f"it is longer than {MAX_BYTES} bytes and is not used."]
        text = data.decode("utf-8-sig")
    except OSError as error:
        return None, [f"it cannot be read ({error.strerror or error})."]
    except UnicodeDecodeError:
        return None, ["it is not UTF-8 text and is not used."]
    matter, body, problem = front_matter(text.replace("\r\n", "\n"))
    if problem:
        return None, [problem]
    return _checked(file, matter, body)


def _checked(file: Path, matter: dict[object, object], body: str) -> tuple[Persona | None, list[str]]:
    problems = [
        f"the key {key!r} is ignored; a persona sets neither tools, model nor rights."
        for key in matter
        if key not in _KNOWN
    ]
    name, description = matter.get("name", file.stem), matter.get("description", "")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return None, ["its name may hold only lowercase letters, digits, - and _; it is not used."]
    if not isinstance(description, str):
        problems.append("its description is not text and is ignored.")
        description = ""
    if not body.strip():
        problems.append("it has no text.")
    line = " ".join(description.split())
    return Persona(name=name, description=line, text=body.strip(), source=str(file)), problems


def front_matter(text: str) -> tuple[dict[object, object], str, str]:
    """Split a file into front matter and text; the third value says what is wrong, then the file is not used."""
    if not text.startswith(f"{_FENCE}\n"):
        return {}, text, ""
    head, fence, body = text[len(_FENCE) + 1 :].partition(f"\n{_FENCE}\n")
    if not fence:
        return {}, "", "its front matter is not closed with a line ---; it is not used."
    if all(_PLAIN.fullmatch(line) for line in head.splitlines()):
        return {key: value for key, _, value in (line.partition(": ") for line in head.splitlines())}, body, ""
    import yaml  # slow to import, and the packaged personas do not need it

    try:
        matter = yaml.safe_load(head)
    except (yaml.YAMLError, RecursionError, ValueError):
        return {}, "", "its front matter is not valid YAML; it is not used."
    if matter is None:
        return {}, body, ""
    if not isinstance(matter, dict):
        return {}, "", "its front matter has to be keys and values; it is not used."
    return matter, body, ""
