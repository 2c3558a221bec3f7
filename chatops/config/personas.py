"""Personas: ``personas/*.md``, a front matter with a description, then the text. They grant no rights."""

import re
from pathlib import Path

from chatops.config.front_matter import split_front_matter
from chatops.config.paths import Paths, packaged_file, plain_file
from chatops.domain.frozen_dataclass import frozen_dataclass

_PERSONA_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_PERSONA_KEYS = frozenset({"name", "description"})
MAX_PERSONA_BYTES = 64_000
"""Of a file: every request carries all of it."""


@frozen_dataclass
class Persona:
    """A persona: one layer of the system prompt."""

    name: str
    description: str
    text: str
    source: str
    """The file that it comes from."""


@frozen_dataclass
class Personas:
    """All personas, and warnings about files that cannot be used as they are."""

    found: tuple[Persona, ...]
    warnings: tuple[str, ...]

    def get(self, name: str) -> Persona | None:
        """Return the persona of that name, or None."""
        return next((persona for persona in self.found if persona.name == name), None)


def load_personas(paths: Paths) -> Personas:
    """Load the packaged personas and the user's own, which replace those of the same name. Never raises."""
    by_name: dict[str, Persona] = {}
    warnings: list[str] = []
    for folder in (packaged_file("personas"), paths.personas):
        try:
            files = sorted(folder.glob("*.md")) if folder.is_dir() else []
        except OSError as error:
            warnings.append(f"The personas in {folder} cannot be read: {error.strerror or error}.")
            continue
        for file in files:
            persona, problems = _read_persona(file)
            warnings.extend(f"Persona {file}: {problem}" for problem in problems)
            if persona is not None:
                by_name[persona.name] = persona
    ordered = sorted(by_name.values(), key=lambda persona: (persona.name != "default", persona.name))
    return Personas(found=tuple(ordered), warnings=tuple(warnings))


def _read_persona(file: Path) -> tuple[Persona | None, list[str]]:
    try:
        with plain_file(file, follow=True) as (handle, _):
            data = handle.read(MAX_PERSONA_BYTES + 1)
        if len(data) > MAX_PERSONA_BYTES:
            return None, [f"it is longer than {MAX_PERSONA_BYTES} bytes and is not used."]
        text = data.decode("utf-8-sig")
    except OSError as error:
        return None, [f"it cannot be read ({error.strerror or error})."]
    except UnicodeDecodeError:
        return None, ["it is not UTF-8 text and is not used."]
    matter, body, problem = split_front_matter(text.replace("\r\n", "\n"))
    if problem:
        return None, [problem]
    return _check_persona(file, matter, body)


def _check_persona(file: Path, matter: dict[object, object], body: str) -> tuple[Persona | None, list[str]]:
    problems = [
        f"the key {key!r} is ignored; a persona sets neither tools, model nor rights."
        for key in matter
        if key not in _PERSONA_KEYS
    ]
    name, description = matter.get("name", file.stem), matter.get("description", "")
    if not isinstance(name, str) or not _PERSONA_NAME.fullmatch(name):
        return None, ["its name may hold only lowercase letters, digits, - and _; it is not used."]
    if not isinstance(description, str):
        problems.append("its description is not text and is ignored.")
        description = ""
    if not body.strip():
        problems.append("it has no text.")
    line = " ".join(description.split()) or _first_line(body)
    return Persona(name=name, description=line, text=body.strip(), source=str(file)), problems


def _first_line(body: str) -> str:
    """Return the first line of a text that has words, without the sign of a heading."""
    return next((words for line in body.splitlines() if (words := line.strip().lstrip("# "))), "")
