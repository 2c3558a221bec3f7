"""Questions that an MCP server asks the user while it runs a call (elicitation), and their answers."""

import re
import unicodedata
from dataclasses import dataclass
from enum import StrEnum

from chatops.domain.ids import CallId


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerQuestion:
    """A question of a server. All texts are the server's own words: untrusted, cut to size, not sanitised."""

    server: str
    """Name of the server in the registry."""
    message: str
    schema: str = ""
    """JSON Schema of the answer: an object of named texts, numbers, booleans and choices. Empty: see `url`."""
    url: str = ""
    """The address that the user is asked to open; empty: see `schema`."""
    secrets: tuple[str, ...] = ()
    """Names of the fields that look like a key or password. What is typed there is not stored."""
    id: str = ""
    """Given when the question is asked; empty before that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenQuestion:
    """A question that waits for the user, and the call that asks it."""

    call_id: CallId
    tool: str
    question: ServerQuestion


class AnswerAction(StrEnum):
    """The user's answer, in the words of the protocol."""

    ACCEPT = "accept"
    DECLINE = "decline"
    CANCEL = "cancel"
    """The user does not want to answer. The server gets this too if a question is void."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer. `content` is the JSON object to send; empty unless a form was accepted."""

    action: AnswerAction
    content: str = ""


_SECRET_PARTS = (
    "apikey|accesskey|privatekey|secret|password|passwd|passwort|kennwort|passphrase|passcode|token|credential|"
    "creditcard|cardnumber|recoverycode|seedphrase|contrasena|motdepasse|onetimecode|verificationcode|authcode|login|"
    "wachtwoord|losenord|adgangskode|parola|sifre|heslo|jelszo"
)
_OTHER_SCRIPTS = ("парол", "ключ", "密码", "密碼", "口令", "密钥", "パスワード", "暗証", "비밀번호", "암호")
_SECRET_WORDS = frozenset(
    {"key", "keys", "pass", "pwd", "pw", "pin", "otp", "totp", "mfa", "2fa", "tan", "cvv", "cvc", "ssn", "iban"}
    | {"mnemonic", "seed", "bearer", "cookie", "jwt", "pat", "clave", "senha"}
)
_PARTS = re.compile(_SECRET_PARTS)
_WORDS = re.compile(r"[a-z0-9]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_LOOKALIKES = str.maketrans("аесорхуіѕјԁԛԝһոαεικνορτυχκ01345$@!", "aecopxyisjdqwhnaeiknoptuxkoieassai")
"""Cyrillic, Armenian and Greek letters, digits and signs that are drawn like a Latin letter."""


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
    shown = _without_marks(_CAMEL.sub(" ", text))
    if found := next((word for word in _OTHER_SCRIPTS if _without_marks(word) in shown), ""):
        return found
    for read in (shown, shown.translate(_LOOKALIKES)):
        words = _WORDS.findall(read)
        if part := _PARTS.search("".join(words)):
            return part[0]
        if found := next((word for word in words if word in _SECRET_WORDS), ""):
            return found
    return ""


def _without_marks(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text).casefold()
    return "".join(char for char in plain if unicodedata.category(char) not in ("Cf", "Cc", "Mn", "Me"))
