"""Files that a program runs or obeys later without asking: build files, hooks, settings of editors and CI."""

import re
import unicodedata
from collections.abc import Mapping

RUNS_LATER: Mapping[str, str] = {
    ".envrc": "direnv",
    ".vscode": "the editor",
    ".idea": "the editor",
    ".devcontainer": "the dev container",
    "makefile": "make",
    "gnumakefile": "make",
    "justfile": "just",
    "package.json": "npm",
    "pyproject.toml": "Python tools",
    "setup.py": "pip",
    "setup.cfg": "Python tools",
    "tox.ini": "tox",
    "conftest.py": "pytest",
    "sitecustomize.py": "Python",
    "usercustomize.py": "Python",
    "build.rs": "cargo",
    ".cargo": "cargo",
    ".husky": "git",
    ".pre-commit-config.yaml": "git",
    ".github": "the build server",
    ".gitlab-ci.yml": "the build server",
    ".gitattributes": "git",
    ".gitmodules": "git",
    ".npmrc": "npm",
    "agents.md": "models",
    "claude.md": "models",
    ".mcp.json": "MCP clients",
    "model_registry.json": "chatops",
    "dockerfile": "docker",
    "docker-compose.yml": "docker",
    "docker-compose.yaml": "docker",
    "compose.yml": "docker",
    "compose.yaml": "docker",
    "vagrantfile": "vagrant",
    "jenkinsfile": "the build server",
    ".circleci": "the build server",
    "cmakelists.txt": "cmake",
    "meson.build": "meson",
    "taskfile.yml": "task",
    "taskfile.yaml": "task",
    "rakefile": "rake",
    "gemfile": "bundler",
    "noxfile.py": "nox",
    "manage.py": "Django",
    "build.gradle": "gradle",
    "build.gradle.kts": "gradle",
    "settings.gradle": "gradle",
    "gradlew": "gradle",
    "mvnw": "maven",
    "pom.xml": "maven",
    "composer.json": "composer",
    "gulpfile.js": "gulp",
    "gruntfile.js": "grunt",
    "flake.nix": "nix",
    "shell.nix": "nix",
    "gemini.md": "models",
    "skill.md": "models",
}
"""Files and folders that a program runs or obeys without being asked again, by folded name."""


_PATTERNS = (
    (re.compile(r".*\.pth"), "Python"),
    (re.compile(r"dockerfile\..+|.+\.dockerfile"), "docker"),
    (re.compile(r".+\.mk|makefile\..+"), "make"),
    (re.compile(r".+\.config\.[cm]?[jt]s"), "JavaScript tools"),
)
"""The same by an expression over the whole folded name."""


def fold(name: str) -> str:
    """Normalise a name as the most lenient file system does: no case, no invisible characters, NFKC."""
    shown = "".join(char for char in name if unicodedata.category(char) != "Cf")
    return unicodedata.normalize("NFKC", shown).casefold().rstrip(". ") or name


def runs_later(path: str) -> tuple[str, ...]:
    """Return the programs that run or obey the file at this relative path later; empty if none is known."""
    parts = [fold(part) for part in path.split("/")]
    found = dict.fromkeys(RUNS_LATER[part] for part in parts if part in RUNS_LATER)
    found |= {program: None for pattern, program in _PATTERNS if pattern.fullmatch(parts[-1])}
    return tuple(found)
