"""Words because of which a name looks as if it stood for a key, or a text as if it asked for one."""

import re
import unicodedata

SECRET_NAME = re.compile(r"key|token|auth|secret|cookie|pass|code|sig", re.IGNORECASE)
"""Found in names of headers and of parameters that hold keys."""
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
