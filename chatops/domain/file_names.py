"""What the name of a file tells: that it holds keys, passwords and tokens, or that a program obeys it without asking.

There are two lists of names of secrets: those that no tool may touch, and those that need the user's approval because
they are part of ordinary work. Build files, hooks, and settings of editors and CI are run or obeyed later. Names are
compared folded; the callers fold them.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence

SECRET_NAMES = frozenset(
    {".ssh", ".gnupg", ".aws", ".azure", ".kube", ".netrc", "_netrc", ".git-credentials", ".pgpass", ".password-store"}
    | {"id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk", ".vault-token"}
)
"""Names of credentials in any folder: refused."""
ENV_TEMPLATES = frozenset({".env.example", ".env.sample", ".env.template", ".env.dist"})
CAREFUL_NAMES = (
    r"\.env|\.env\..+|\.envrc|.+\.env"
    # Private keys and key stores: TLS, Java, PuTTY, Apple, KeePass, OpenVPN, Kerberos, age; SSH keys of any name.
    r"|.*\.(?:pem|key|p8|p12|pfx|pkcs12|jks|keystore|ppk|kdbx|ovpn|keytab|agekey)|id_[^.]+"
    # Package registries, clouds and databases.
    r"|\.npmrc|\.yarnrc\.yml|\.pypirc|\.dockercfg|\.s3cfg|\.boto|\.my\.cnf|\.mylogin\.cnf|\.htpasswd|\.terraformrc"
    r"|kubeconfig|rclone\.conf|auth\.json|credentials|credentials\.(?:json|toml|ya?ml|ini|csv)"
    r"|passwords?\.(?:txt|csv|json|ya?ml)|tokens?\.txt|wp-config\.php"
    r"|service[-_]account.*\.json|client_secret.*\.json|secrets?\.(?:json|toml|ya?ml|ini|env)|.+\.tfstate"
    # Histories of typed commands, which may include passwords.
    r"|\.(?:bash|zsh|sh|python|psql|mysql|sqlite|node_repl|rediscli)_history"
)
"""Files that often hold secrets, as an expression over the whole name: asked about."""
CAREFUL_PLACES = frozenset({(".git", "config"), (".docker", "config.json"), ("gh", "hosts.yml")})
"""Folder and file name of further such files."""
PACKAGE_FOLDERS = frozenset({"node_modules", "site-packages", "dist-packages"})
"""Folders of published packages: their certificates and keys are for tests, and their files may link to a cache."""
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
_PROGRAM_PATTERNS = (
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


def is_secret(parts: Sequence[str]) -> bool:
    """Return True if a path of these (folded) parts leads to credentials."""
    return any(part in SECRET_NAMES for part in parts)


def may_hold_secrets(parts: Sequence[str]) -> bool:
    """Return True if the file at these (folded) parts often holds secrets although it is a part of ordinary work."""
    if not parts:
        return False
    if tuple(parts[-2:]) in CAREFUL_PLACES:
        return True
    if parts[-1] in ENV_TEMPLATES or not PACKAGE_FOLDERS.isdisjoint(parts):
        return False
    return re.fullmatch(CAREFUL_NAMES, parts[-1]) is not None


def runs_later(path: str) -> tuple[str, ...]:
    """Return the programs that run or obey the file at this relative path later; empty if none is known."""
    parts = [fold(part) for part in path.split("/")]
    programs = [_PROGRAMS[part] for part in parts if part in _PROGRAMS]
    programs += [program for pattern, program in _PROGRAM_PATTERNS if pattern.fullmatch(parts[-1])]
    return tuple(dict.fromkeys(programs))
