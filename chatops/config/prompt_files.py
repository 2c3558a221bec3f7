"""Markdown files that become part of the prompt: personas, memories, and skills, which a model reads as it needs them.

Personas and skills have front matter: keys and values in YAML between two lines ``---``, before the text.

Personas are ``personas/*.md``, a description and the text. They grant no rights.

Skills are folders with a ``SKILL.md`` (agentskills.io), in the user's config folder and in a trusted workspace. The
front matter of a skill says name and description, which are part of the prompt, and perhaps ``allowed-tools``. The
files are read once, as those of a workspace are: by descriptors, without following links, within limits. So a file that
is swapped afterwards has no effect.

Memories are what the user and the model note for later sessions, in the data folder. There is one for the user and one
for each workspace. That of a workspace is named by the identity of its folder, so that a folder that takes its place
has none. A missing file is an empty memory.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from chatops.config.folder_identity import folder_identity
from chatops.config.paths import Paths, packaged_file, plain_file, write_private
from chatops.config.workspace_files import Item, read_skills
from chatops.domain.errors import ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sanitize import show_path
from chatops.domain.tools import SkillUse
from chatops.policy.verdicts import skill_use

SKILL_FILE = "SKILL.md"
_SKILL_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_MAX_NAME, MAX_DESCRIPTION = 64, 1_024
"""Characters, as agentskills.io limits them."""
_FRONT_MATTER = re.compile(r"---\n(?P<yaml>.*?)^---(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_PLAIN_LINE = re.compile(r"name: [a-z]{6,}|description: [A-Za-z][A-Za-z ,;()'-]* [a-z]+\.")
"""A line whose value is text in YAML, whatever the words are.

No value is a word that YAML reads otherwise: the longest of them, ``false``, has five letters.
"""
_PERSONA_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_PERSONA_KEYS = frozenset({"name", "description"})
MAX_PERSONA_BYTES = 64_000
"""Of a file: every request carries all of it."""
MAX_MEMORY_BYTES = 100_000
"""Of a memory, which becomes part of the prompt. A longer file is not used."""


@frozen_dataclass
class Skill:
    """A skill."""

    name: str
    description: str
    text: str
    """The instructions."""
    source: str
    """Folder that it comes from."""
    use: SkillUse | None = None
    """Tools that it permits while it is in use; None: it does not say."""
    files: tuple[tuple[str, bytes], ...] = ()
    """Paths relative to the folder, and contents."""

    def file(self, path: str) -> bytes | None:
        """Return the content of a file; None if the skill has none of exactly that path."""
        return next((data for name, data in self.files if name == path), None)


@frozen_dataclass
class Skills:
    """All skills, and warnings about those that cannot be used."""

    found: tuple[Skill, ...] = ()
    warnings: tuple[str, ...] = ()

    def get(self, name: str) -> Skill | None:
        """Return the skill of that name, or None."""
        return next((skill for skill in self.found if skill.name == name), None)


def load_skills(folder: Path) -> Skills:
    """Load the skills in the folders of `folder`. Never raises."""
    return skills_of(read_skills(folder), source=str(folder))


def skills_of(items: Sequence[Item], *, source: str) -> Skills:
    """Make skills of files, whose paths are ``[…/]skills/NAME/FILE``. `source` is the folder that holds the skills."""
    folders: dict[str, dict[str, bytes]] = {}
    warnings: list[str] = []
    for item in items:
        _, _, path = f"/{item.path}".partition("/skills/")
        name, _, file = path.partition("/")
        if item.problem:
            warnings.append(f"Skill file {show_path(item.path)} is ignored: {item.problem}.")
        elif file:
            folders.setdefault(name, {})[file] = item.data
    skills: list[Skill] = []
    for name, files in folders.items():
        shown = f"Skill {show_path(f'{source}/{name}')}"
        try:
            skill = _read_skill(name, files, source=f"{source}/{name}")
        except _UnusableError as error:
            warnings.append(f"{shown}: {error}.")
            continue
        skills.append(skill)
        asks = ", ".join(skill.use.asks) if skill.use is not None else ""
        if asks:
            warnings.append(f"{shown}: patterns in allowed-tools are not applied, {asks} asks instead.")
    return Skills(found=tuple(skills), warnings=tuple(warnings))


def join_skills(own: Skills, workspace: Skills) -> Skills:
    """Return the skills of the user and of the workspace. A skill of the workspace does not replace one of the user."""
    names = {skill.name for skill in own.found}
    ignored = [skill.name for skill in workspace.found if skill.name in names]
    warnings = [f"The workspace's skill {name} is ignored: you have one of that name." for name in ignored]
    others = tuple(skill for skill in workspace.found if skill.name not in names)
    return Skills(found=(*own.found, *others), warnings=(*own.warnings, *workspace.warnings, *warnings))


class _UnusableError(Exception):
    """Raised for a file that cannot be used. Its text says why, as a clause."""


def _read_skill(folder: str, files: dict[str, bytes], *, source: str) -> Skill:
    """Make the skill in a folder of that name, of its files. Raises _UnusableError."""
    data = files.get(SKILL_FILE)
    if data is None:
        raise _UnusableError(f"it has no {SKILL_FILE}, so it is not used")
    try:
        parts = _split_front_matter(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise _UnusableError(f"{SKILL_FILE} is not UTF-8 text, so it is not used") from None
    matter = parts.matter
    name, description, allowed = matter.get("name"), matter.get("description"), matter.get("allowed-tools")
    if not isinstance(name, str) or len(name) > _MAX_NAME or not _SKILL_NAME.fullmatch(name):
        raise _UnusableError("its name has to be lowercase letters, digits and single hyphens; it is not used")
    if name != folder:
        raise _UnusableError(f"its name {name} is not that of its folder; it is not used")
    if not isinstance(description, str) or not description.strip() or len(description) > MAX_DESCRIPTION:
        raise _UnusableError(f"it needs a description of at most {MAX_DESCRIPTION:,} characters; it is not used")
    if isinstance(allowed, list) and all(isinstance(word, str) for word in allowed):
        allowed = ", ".join(allowed)
    use = skill_use(name, allowed) if isinstance(allowed, str) else None
    if use is None and "allowed-tools" in matter:
        raise _UnusableError("its allowed-tools cannot be read, so it is not used")
    return Skill(
        name=name,
        description=" ".join(description.split()),
        text=parts.body.strip(),
        source=source,
        use=use,
        files=tuple(sorted((path, content) for path, content in files.items() if path != SKILL_FILE)),
    )


@frozen_dataclass
class _Parts:
    """A file in two parts: its front matter, empty if it has none, and its text."""

    matter: Mapping[object, object]
    body: str


def _split_front_matter(text: str) -> _Parts:
    """Split a file into front matter and text. Raises _UnusableError."""
    text = text.replace("\r\n", "\n")
    if not text.startswith("---\n"):
        return _Parts(matter={}, body=text)
    found = _FRONT_MATTER.match(text)
    if found is None:
        raise _UnusableError("its front matter is not closed with a line ---; it is not used")
    lines, body = found["yaml"].splitlines(), text[found.end() :]
    if all(_PLAIN_LINE.fullmatch(line) for line in lines):
        return _Parts(matter={key: value for key, _, value in (line.partition(": ") for line in lines)}, body=body)
    import yaml  # slow to import, and the packaged personas do not need it

    try:
        matter = yaml.safe_load(found["yaml"])
    except (yaml.YAMLError, RecursionError, ValueError):
        raise _UnusableError("its front matter is not valid YAML; it is not used") from None
    if matter is not None and not isinstance(matter, dict):
        raise _UnusableError("its front matter has to be keys and values; it is not used")
    return _Parts(matter=matter or {}, body=body)


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
            problems: list[str] = []
            try:
                persona = _read_persona(file, problems)
                by_name[persona.name] = persona
            except _UnusableError as error:
                problems = [str(error)]
            warnings.extend(f"Persona {file}: {problem}." for problem in problems)
    ordered = sorted(by_name.values(), key=lambda persona: (persona.name != "default", persona.name))
    return Personas(found=tuple(ordered), warnings=tuple(warnings))


def _read_persona(file: Path, problems: list[str]) -> Persona:
    """Return the persona in a file. What it ignores is added to `problems`, as clauses. Raises _UnusableError."""
    try:
        with plain_file(file, follow=True) as (handle, _):
            data = handle.read(MAX_PERSONA_BYTES + 1)
        if len(data) > MAX_PERSONA_BYTES:
            raise _UnusableError(f"it is longer than {MAX_PERSONA_BYTES} bytes and is not used")
        parts = _split_front_matter(data.decode("utf-8-sig"))
    except OSError as error:
        raise _UnusableError(f"it cannot be read ({error.strerror or error})") from None
    except UnicodeDecodeError:
        raise _UnusableError("it is not UTF-8 text and is not used") from None
    name, description = parts.matter.get("name", file.stem), parts.matter.get("description", "")
    if not isinstance(name, str) or not _PERSONA_NAME.fullmatch(name):
        raise _UnusableError("its name may hold only lowercase letters, digits, - and _; it is not used")
    problems += [
        f"the key {key!r} is ignored; a persona sets neither tools, model nor rights"
        for key in parts.matter
        if key not in _PERSONA_KEYS
    ]
    if not isinstance(description, str):
        problems.append("its description is not text and is ignored")
        description = ""
    if not parts.body.strip():
        problems.append("it has no text")
    # Without a description, the first line that has words counts, without the sign of a heading.
    first = next((words for line in parts.body.splitlines() if (words := line.strip().lstrip("# "))), "")
    described = " ".join(description.split()) or first
    return Persona(name=name, description=described, text=parts.body.strip(), source=str(file))


class MemoryScope(StrEnum):
    """Memories that exist."""

    USER = "user"
    """For every workspace."""
    WORKSPACE = "workspace"

    @property
    def label(self) -> str:
        """Name of the memory in texts."""
        return f"{self.value} memory"


class Memories:
    """The memories of a user in a workspace. May be used from any thread."""

    def __init__(self, folder: Path, *, workspace: Path) -> None:
        """Locate the files in `folder`, which is made when the first one is written."""
        identity = folder_identity(workspace) or f"0:0:{workspace}"
        digest = hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:32]
        # The folder's name is for the user, who sees the path before a change.
        name = f"{re.sub('[^A-Za-z0-9_-]+', '-', workspace.name)[:40] or 'root'}-{digest}"
        self._files = {
            MemoryScope.USER: folder / "user.md",
            MemoryScope.WORKSPACE: folder / "workspaces" / f"{name}.md",
        }
        self._cached: dict[MemoryScope, tuple[object, str]] = {}
        """The state of each file when it was read last, and its text then."""

    def path(self, scope: MemoryScope) -> Path:
        """Return the file of a memory, which may not exist."""
        return self._files[scope]

    def read(self, scope: MemoryScope) -> str:
        """Return the text of a memory; empty if there is no file. Raises ConfigError if it cannot be read."""
        path = self.path(scope)
        try:
            with plain_file(path) as (file, found):
                version = (found.st_ino, found.st_size, found.st_mtime_ns)
                cached_version, text = self._cached.get(scope, (None, ""))
                if cached_version == version:
                    return text
                data = file.read(MAX_MEMORY_BYTES + 1)
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise ConfigError(
                f"The {scope.label} {path} cannot be read: {error.strerror or error}.",
                advice="Check the file and its owner; it has to be a plain file.",
            ) from None
        if len(data) > MAX_MEMORY_BYTES:
            raise ConfigError(
                f"The {scope.label} {path} is larger than {MAX_MEMORY_BYTES:,} bytes, so it is not used.",
                advice="Shorten it: /memory edit",
            )
        text = data.decode("utf-8-sig", "replace")
        self._cached[scope] = (version, text)
        return text

    def write(self, scope: MemoryScope, text: str) -> None:
        """Replace a memory. Raises ConfigError."""
        write_private(self.path(scope), text.encode("utf-8", "replace"))

    def texts(self) -> Sequence[tuple[str, str]]:
        """Return label and text of each memory that is not empty. One that cannot be read says so in its text."""
        texts = []
        for scope in (MemoryScope.WORKSPACE, MemoryScope.USER):
            try:
                text = self.read(scope)
            except ConfigError as error:
                text = f"[{error}]"
            if text.strip():
                texts.append((scope.label, text))
        return texts
