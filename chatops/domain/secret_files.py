"""Names under which programs keep keys, passwords and tokens.

There are two lists of names: those that no tool may touch, and those that need the user's approval because they are
part of ordinary work. Names are compared case-folded; the callers fold them.
"""

import re
from collections.abc import Sequence

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
