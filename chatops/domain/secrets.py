"""Names under which programs keep keys, passwords and tokens, and the keys that this process knows.

There are two lists of names: those that no tool may touch, and those that need the user's approval because they are
part of ordinary work. Names are compared case-folded; the callers fold them.

Theory of operation of known keys

Keys of models, servers, services and credentials are told to `know`, as soon as the configuration names a variable
that is set, otherwise when they are read. From then on `without_keys` takes them out of every text: each value that
the store writes (`store.connection.bind`), what digests of stored texts are made of (`store.codec`, `store.audit`),
the log, and what tools return, before model, screen or store have it. A key is found as it is, percent-encoded, in
hex, with the escapes of JSON and HTML, and in base64 at any of its three alignments.

Nothing that was approved is changed by that, because no call with a known key in its arguments gets as far: one of a
model is refused with its reply (`models.redaction.Mask`), any other one by its inspection
(`toolkit.base.inspect_call`). To show it plainly and store it otherwise would ask about one thing and repeat another
one after a restart; to run it as stored would run what nobody wrote.

A key that could be a word of an answer (`is_distinctive`) is not known: under 8 characters, or under 16 without both
letters and digits. Users write ``ollama`` where no key is needed.
"""

import base64
import binascii
import html
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import quote

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


SECRET_NAME = re.compile(r"key|token|auth|secret|cookie|pass|code|sig", re.IGNORECASE)
"""Found in names of headers and of parameters that hold keys."""
HIDDEN = "[key]"
"""Stands where a key was."""
SHORTEST = 6
"""Minimum length in characters of a spelling that is searched for."""


def is_distinctive(secret: str) -> bool:
    """Return True if `secret` cannot be a word of an answer."""
    mixed = any(char.isdigit() for char in secret) and any(char.isalpha() for char in secret)
    return len(secret) >= 16 or (len(secret) >= 8 and mixed)


def spellings(secrets: Iterable[str]) -> tuple[str, ...]:
    """Return all spellings in which a secret may occur in a text, the longest first.

    Of a secret that is the base64 of ``user:password``, as Basic authentication has it, also the two and the password.
    """
    found: set[str] = set()
    for text in (text for secret in secrets for text in _plain(secret)):
        data = text.encode("utf-8", "surrogatepass")
        found |= {quote(text, safe="", errors="surrogatepass"), data.hex(), data.hex().upper(), html.escape(text)}
        # Arguments are JSON in a row that is JSON, and may hold JSON themselves.
        for escaped in (text, json.dumps(text)[1:-1].replace("/", "\\/")):
            for _ in range(4):
                found.add(escaped)
                escaped = json.dumps(escaped)[1:-1]
        for code in _base64(data):
            found |= {code, code.translate(_URL_SAFE)}
    return tuple(sorted((text for text in found if len(text) >= SHORTEST), key=len, reverse=True))


_URL_SAFE = str.maketrans("+/", "-_")


def _plain(secret: str) -> Iterator[str]:
    yield secret
    try:
        pair = base64.b64decode(secret, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return
    password = pair.partition(":")[2]
    if pair.isprintable() and is_distinctive(password):
        yield from (pair, password)


def _base64(data: bytes) -> Iterator[str]:
    """Yield `data` in base64, and what it becomes within a longer text, at each of its three alignments."""
    whole = base64.b64encode(data).decode()
    yield from (whole, whole.rstrip("="))
    for before, lead in ((0, 0), (1, 2), (2, 3)):
        # Both ends are left off. They depend on the bytes around the secret.
        yield base64.b64encode(bytes(before) + data).decode()[lead : (before + len(data)) // 3 * 4]


def without(text: str, spelled: tuple[str, ...]) -> str:
    """Return `text` with `HIDDEN` in place of each of the spellings."""
    for spelling in spelled:
        if spelling in text:
            text = text.replace(spelling, HIDDEN)
    return text


_known: tuple[frozenset[str], tuple[str, ...]] = (frozenset(), ())
"""The keys that this process knows, and their spellings. Replaced as a whole, as other threads read it."""


def know(*keys: str) -> None:
    """Let `without_keys` find these keys from now on, if they are distinctive."""
    global _known
    new = {key for key in keys if is_distinctive(key)} - _known[0]
    if new:
        keep = _known[0] | new
        _known = (keep, spellings(keep))


def known_keys() -> frozenset[str]:
    """Return the keys that this process knows."""
    return _known[0]


def without_keys(text: str) -> str:
    """Return `text` without the keys that this process knows."""
    return without(text, _known[1])
