"""Who may use the page: links that log in once, logins, and what each change has to carry.

Theory of operation

The terminal prints a link with a random token. Opening the link uses nothing up, because programs that preview links
open them too: it shows a button, and the button's POST uses the token. A token is good for one login and for ten
minutes, and a new link voids the one before. After many wrong tokens a wrong one is told to wait. The right one still
logs in: it has 256 random bits, so nobody guesses it, and nobody else on the machine can lock the user out.

A login is a random value in a cookie that scripts cannot read and that other sites cannot send. Only digests of tokens
and cookies are kept, in memory: a login ends with the program, after a time without use, or when the user logs out.
Looking up a digest takes no time that depends on how much of a guess is right.

Every change also has to carry the login's own form token, because a cookie proves only which browser it was.
"""

import hashlib
import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from hmac import compare_digest

from chatops.domain.errors import ChatopsError

LINK_S = 600
"""Seconds for which a link may be used."""
IDLE_S = 12 * 3600
"""Seconds without use after which a login ends."""
MAX_LOGIN_S = 7 * 24 * 3600
"""Seconds after which a login ends in any case."""
MAX_LOGINS = 20
"""The one that was used longest ago makes room for another."""
MAX_WRONG_TOKENS, WRONG_TOKENS_S = 20, 60
"""This many wrong tokens within so many seconds, and another wrong one is told to wait."""


class RefusedError(ChatopsError):
    """The link does not log in."""


class TooManyError(RefusedError):
    """A wrong link, after many wrong ones."""


@dataclass(slots=True, kw_only=True)
class Login:
    """One browser that is logged in."""

    number: int
    """Counts the logins of this program, for the log of decisions."""
    client: str
    """Address that it logged in from."""
    form_token: str
    since: float
    used_at: float
    """In seconds since boot, as `since`."""

    def __str__(self) -> str:
        return f"login {self.number} from {self.client}"


def since_boot() -> float:
    """Return seconds that the user cannot turn back, and that count while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Logins:
    """The logins of one running page."""

    def __init__(self, *, clock: Callable[[], float] = since_boot) -> None:
        """Start without any link. `clock` returns seconds."""
        self._clock = clock
        self._link: tuple[str, float] | None = None
        """Digest of the token that logs in, and until when."""
        self._logins: dict[str, Login] = {}
        """By the digest of the cookie."""
        self._count = 0
        self._wrong_at: deque[float] = deque(maxlen=MAX_WRONG_TOKENS)
        """When the latest wrong tokens came."""

    def new_token(self) -> str:
        """Return the token of a new link. The one before is void."""
        token = secrets.token_urlsafe(32)
        self._link = (_digest(token), self._clock() + LINK_S)
        return token

    def log_in(self, token: str, *, client: str) -> str:
        """Use a token up, and return the value of the cookie. Raises RefusedError and TooManyError."""
        now = self._clock()
        link, until = self._link or ("", 0.0)
        if not compare_digest(_digest(token), link) or now > until:
            if len(self._wrong_at) == MAX_WRONG_TOKENS and now - self._wrong_at[0] < WRONG_TOKENS_S:
                raise TooManyError("Too many wrong links were tried. Wait a minute before you try another one.")
            self._wrong_at.append(now)
            raise RefusedError("This link does not log in: it was used, is too old, or was replaced by a newer one.")
        self._link = None
        self._count += 1
        if len(self._logins) >= MAX_LOGINS:
            del self._logins[min(self._logins, key=lambda digest: self._logins[digest].used_at)]
        cookie = secrets.token_urlsafe(32)
        self._logins[_digest(cookie)] = Login(
            number=self._count, client=client, form_token=secrets.token_urlsafe(32), since=now, used_at=now
        )
        return cookie

    def find(self, cookie: str) -> Login | None:
        """Return the login of a cookie, which counts as used now; None if there is none, or if it has ended."""
        key = _digest(cookie)
        login = self._logins.get(key)
        if login is None or self.has_ended(login):
            self._logins.pop(key, None)
            return None
        login.used_at = self._clock()
        return login

    def has_ended(self, login: Login) -> bool:
        """Return True if a login has ended. To ask is no use of it, so a stream does not keep its login alive."""
        now = self._clock()
        is_old = now - login.used_at > IDLE_S or now - login.since > MAX_LOGIN_S
        return is_old or login not in self._logins.values()

    def log_out(self, cookie: str) -> None:
        """End a login."""
        self._logins.pop(_digest(cookie), None)


def may_change(login: Login, form_token: str) -> bool:
    """Return True if a form was made for this login."""
    return compare_digest(_digest(form_token), _digest(login.form_token))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
