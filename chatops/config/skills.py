"""Skills: instructions in Markdown that a model reads when a task needs them.

Skills are folders with a ``SKILL.md`` (agentskills.io), in the user's config folder and in a trusted workspace. The
front matter of a skill says name and description, which are part of the prompt, and perhaps ``allowed-tools``. The
files are read once, as those of a workspace are: by descriptors, without following links, within limits. So a file that
is swapped afterwards has no effect.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from chatops.config.front_matter import split_front_matter
from chatops.config.workspace_files import Item, read_skills
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sanitize import show_path
from chatops.domain.tools import SkillUse
from chatops.policy.verdicts import skill_use

SKILL_FILE = "SKILL.md"
_SKILL_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_MAX_NAME, MAX_DESCRIPTION = 64, 1_024
"""Characters, as agentskills.io limits them."""


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
        skill, problem = _skill_or_problem(name, files, source=f"{source}/{name}")
        if skill is not None:
            skills.append(skill)
        if problem:
            warnings.append(f"Skill {show_path(f'{source}/{name}')}: {problem}.")
    return Skills(found=tuple(skills), warnings=tuple(warnings))


def join_skills(own: Skills, workspace: Skills) -> Skills:
    """Return the skills of the user and of the workspace. A skill of the workspace does not replace one of the user."""
    names = {skill.name for skill in own.found}
    ignored = [skill.name for skill in workspace.found if skill.name in names]
    warnings = [f"The workspace's skill {name} is ignored: you have one of that name." for name in ignored]
    others = tuple(skill for skill in workspace.found if skill.name not in names)
    return Skills(found=(*own.found, *others), warnings=(*own.warnings, *workspace.warnings, *warnings))


def _skill_or_problem(folder: str, files: dict[str, bytes], *, source: str) -> tuple[Skill | None, str]:
    """Return the skill, and what is wrong with it, as a clause."""
    data = files.pop(SKILL_FILE, None)
    if data is None:
        return None, f"it has no {SKILL_FILE}, so it is not used"
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return None, f"{SKILL_FILE} is not UTF-8 text, so it is not used"
    matter, body, problem = split_front_matter(text)
    if problem:
        return None, problem.rstrip(".")
    name, description, allowed = matter.get("name"), matter.get("description"), matter.get("allowed-tools")
    if not isinstance(name, str) or len(name) > _MAX_NAME or not _SKILL_NAME.fullmatch(name):
        return None, "its name has to be lowercase letters, digits and single hyphens; it is not used"
    if name != folder:
        return None, f"its name {name} is not that of its folder; it is not used"
    if not isinstance(description, str) or not description.strip() or len(description) > MAX_DESCRIPTION:
        return None, f"it needs a description of at most {MAX_DESCRIPTION:,} characters; it is not used"
    if isinstance(allowed, list) and all(isinstance(word, str) for word in allowed):
        allowed = ", ".join(allowed)
    use = skill_use(name, allowed) if isinstance(allowed, str) else None
    if use is None and "allowed-tools" in matter:
        return None, "its allowed-tools cannot be read, so it is not used"
    skill = Skill(
        name=name,
        description=" ".join(description.split()),
        text=body.strip(),
        source=source,
        files=tuple(sorted(files.items())),
    )
    if use is None:
        return skill, ""
    note = f"patterns in allowed-tools are not applied, {', '.join(use.asks)} asks instead" if use.asks else ""
    return replace(skill, use=use), note
