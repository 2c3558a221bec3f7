"""Files that a program runs or obeys later without asking: build files, hooks, settings of editors and CI."""

import re
import unicodedata
from collections.abc import Mapping

_NAMES_BY_PROGRAM = {
    "direnv": (".envrc",),
    "the editor": (".vscode", ".idea"),
    "the dev container": (".devcontainer",),
    "make": ("makefile", "gnumakefile"),
    "just": ("justfile",),
    "npm": ("package.json", ".npmrc"),
    "Python tools": ("pyproject.toml", "setup.cfg"),
    "pip": ("setup.py",),
    "tox": ("tox.ini",),
    "pytest": ("conftest.py",),
    "Python": ("sitecustomize.py", "usercustomize.py"),
    "cargo": ("build.rs", ".cargo"),
    "git": (".husky", ".pre-commit-config.yaml", ".gitattributes", ".gitmodules"),
    "the build server": (".github", ".gitlab-ci.yml", "jenkinsfile", ".circleci"),
    "models": ("agents.md", "claude.md", "gemini.md", "skill.md"),
    "MCP clients": (".mcp.json",),
    "chatops": ("model_registry.json",),
    "docker": ("dockerfile", "docker-compose.yml", "docker-compose.yaml", "compose.yml", "compose.yaml"),
    "vagrant": ("vagrantfile",),
    "cmake": ("cmakelists.txt",),
    "meson": ("meson.build",),
    "task": ("taskfile.yml", "taskfile.yaml"),
    "rake": ("rakefile",),
    "bundler": ("gemfile",),
    "nox": ("noxfile.py",),
    "Django": ("manage.py",),
    "gradle": ("build.gradle", "build.gradle.kts", "settings.gradle", "gradlew"),
    "maven": ("mvnw", "pom.xml"),
    "composer": ("composer.json",),
    "gulp": ("gulpfile.js",),
    "grunt": ("gruntfile.js",),
    "nix": ("flake.nix", "shell.nix"),
}
_PROGRAMS: Mapping[str, str] = {name: program for program, names in _NAMES_BY_PROGRAM.items() for name in names}
"""The program that runs or obeys a file or folder without being asked again, by its folded name."""
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
    programs = [_PROGRAMS[part] for part in parts if part in _PROGRAMS]
    programs += [program for pattern, program in _PATTERNS if pattern.fullmatch(parts[-1])]
    return tuple(dict.fromkeys(programs))
