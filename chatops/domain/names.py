"""Recognise keys, passwords and tokens by their names, and files that a program obeys without asking.

Files with secrets are in two lists: no tool may touch those of `SECRET_NAMES`, and those of `CAREFUL_NAMES` need the
user's approval, because they are part of ordinary work. Callers `fold` a file's name before it is compared. Names of
values (headers, form fields), and texts that ask for a value, are searched for words.
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
SECRET_NAME = re.compile(r"key|token|auth|secret|cookie|pass|code|sig", re.IGNORECASE)
"""Expression that is found in names of headers and of URL parameters that hold keys."""
_SECRET_PARTS = (
    "apikey|accesskey|privatekey|secret|password|passwd|passwort|kennwort|passphrase|passcode|token|credential|"
    "creditcard|cardnumber|recoverycode|seedphrase|contrasena|motdepasse|onetimecode|verificationcode|authcode|login|"
    "wachtwoord|losenord|adgangskode|parola|sifre|heslo|jelszo"
)
"""Words of several languages, found also inside of longer words and across separators (`api_key`)."""
_OTHER_SCRIPTS = ("парол", "ключ", "密码", "密碼", "口令", "密钥", "パスワード", "暗証", "비밀번호", "암호")
_SECRET_WORDS = frozenset(
    {"key", "keys", "pass", "pwd", "pw", "pin", "otp", "totp", "mfa", "2fa", "tan", "cvv", "cvc", "ssn", "iban"}
    | {"mnemonic", "seed", "bearer", "cookie", "jwt", "pat", "clave", "senha"}
)
"""Words that count only as a whole: `pin` is also in "opinion"."""
_PARTS_PATTERN = re.compile(_SECRET_PARTS)
_ASCII_WORD = re.compile(r"[a-z0-9]+")
_CAMEL_CASE_BORDER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_LOOKALIKES = str.maketrans("аесорхуіѕјԁԛԝһոαεικνορτυχκ01345$@!", "aecopxyisjdqwhnaeiknoptuxkoieassai")
"""Cyrillic, Armenian and Greek letters, digits and signs that are drawn like a Latin letter."""


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


def looks_secret(*texts: str) -> bool:
    """Return True if one of `texts` seems to ask for a key, password, token or the like.

    Letters that look like others, invisible characters and separators do not hide a word. It only adds a warning, so a
    word too many does no harm.
    """
    return bool(secret_word(*texts))


def secret_word(*texts: str) -> str:
    """Return the first word because of which `texts` look like a secret; empty if they do not."""
    return next((word for text in texts if (word := _secret_word(text))), "")


def _secret_word(text: str) -> str:
    shown = _without_marks(_CAMEL_CASE_BORDER.sub(" ", text))
    if foreign := next((word for word in _OTHER_SCRIPTS if _without_marks(word) in shown), ""):
        return foreign
    for spelling in (shown, shown.translate(_LOOKALIKES)):
        words = _ASCII_WORD.findall(spelling)
        if part := _PARTS_PATTERN.search("".join(words)):
            return part[0]
        if whole := next((word for word in words if word in _SECRET_WORDS), ""):
            return whole
    return ""


def _without_marks(text: str) -> str:
    """Return `text` folded, without accents and invisible characters."""
    plain = unicodedata.normalize("NFKD", text).casefold()
    return "".join(char for char in plain if unicodedata.category(char) not in ("Cf", "Cc", "Mn", "Me"))
