"""Keys that this process knows, which no stored or shown text contains.

Theory of operation

Keys of models, servers, services and credentials are given to `add_known_keys` as soon as the configuration names a
variable that is set, otherwise when they are read. From then on `without_keys` takes them out of every text: each value
that the store writes (`store.connection.bind`), what digests of stored texts are made of (`store.codec`,
`store.audit`), the log, and what tools return, before model, screen or store have it. A key is found as it is,
percent-encoded, in hex, with the escapes of JSON and HTML, and in base64 at any of its three alignments.

Nothing that was approved is changed by that, because no call with a known key in its arguments gets as far: one of a
model is refused with its reply (`models.keys.Mask`), any other one by its inspection
(`toolkit.base.inspect_call`). To show it plainly and store it otherwise would ask about one thing and repeat another
one after a restart; to run it as stored would run what nobody wrote.

A key that could be a word of an answer (`is_distinctive`) is not known: under 8 characters, or under 16 without both
letters and digits. Users write ``ollama`` where no key is needed.
"""

import base64
import binascii
import html
import json
from collections.abc import Iterable, Iterator
from urllib.parse import quote

HIDDEN = "[key]"
"""Stands where a key was."""
MIN_SPELLING = 6
"""Characters of a spelling that is searched for, at least: a shorter one is also found in other words."""
_NESTED_JSON = 4
"""How often JSON escapes a text: arguments are JSON in a row that is JSON, and may hold JSON themselves."""
_URL_SAFE = str.maketrans("+/", "-_")


def is_distinctive(secret: str) -> bool:
    """Return True if `secret` cannot be a word of an answer."""
    mixed = any(char.isdigit() for char in secret) and any(char.isalpha() for char in secret)
    return len(secret) >= 16 or (len(secret) >= 8 and mixed)


def spellings(secrets: Iterable[str]) -> tuple[str, ...]:
    """Return all spellings in which a secret may occur in a text, the longest first."""
    found: set[str] = set()
    for text in (text for secret in secrets for text in _with_basic_parts(secret)):
        data = text.encode("utf-8", "surrogatepass")
        found |= {quote(text, safe="", errors="surrogatepass"), data.hex(), data.hex().upper(), html.escape(text)}
        for escaped in (text, json.dumps(text)[1:-1].replace("/", "\\/")):
            for _ in range(_NESTED_JSON):
                found.add(escaped)
                escaped = json.dumps(escaped)[1:-1]
        for code in _base64(data):
            found |= {code, code.translate(_URL_SAFE)}
    return tuple(sorted((text for text in found if len(text) >= MIN_SPELLING), key=len, reverse=True))


def _with_basic_parts(secret: str) -> Iterator[str]:
    """Yield `secret`, and if it is the base64 of ``user:password``, both of them and the password."""
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
    # A group of three bytes is written as four digits. If the longer text has bytes before `data` in its first group,
    # the first digits depend on them; the digits of an unfinished last group depend on what follows. Both are left off.
    for bytes_before, digits_before in ((0, 0), (1, 2), (2, 3)):
        code = base64.b64encode(bytes(bytes_before) + data).decode()
        yield code[digits_before : (bytes_before + len(data)) // 3 * 4]


def replace_spellings(text: str, spelled: tuple[str, ...]) -> str:
    """Return `text` with `HIDDEN` in place of each of the spellings."""
    for spelling in spelled:
        if spelling in text:
            text = text.replace(spelling, HIDDEN)
    return text


_known: tuple[frozenset[str], tuple[str, ...]] = (frozenset(), ())
"""The keys that this process knows, and their spellings. Replaced as a whole, as other threads read it."""


def add_known_keys(*keys: str) -> None:
    """Let `without_keys` find these keys from now on, if they are distinctive."""
    global _known
    new = {key for key in keys if is_distinctive(key)} - _known[0]
    if new:
        all_keys = _known[0] | new
        _known = (all_keys, spellings(all_keys))


def known_keys() -> frozenset[str]:
    """Return the keys that this process knows."""
    return _known[0]


def without_keys(text: str) -> str:
    """Return `text` without the keys that this process knows."""
    return replace_spellings(text, _known[1])
