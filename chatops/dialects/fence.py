"""The fence around a tool result where results are sent as text.

    [result 5d1c9a0e7b3f2846 of file_read: success]
    output of the tool
    [end of result 5d1c9a0e7b3f2846]

The output of a tool is untrusted. It must not be able to end its own fence and continue as a message. So the number in
the fence is derived from the content and a secret, and the content cannot predict it. No randomness is involved: the
same history always gives the same text, so servers can reuse their prompt cache.
"""

import hashlib
import hmac

from chatops.dialects.writers.inline import plain_name

_DIGITS = 16


def nonce_of(secret: str, *texts: str) -> str:
    """Return 16 hex digits derived from `secret` and `texts` that occur in none of the `texts`.

    `secret` must be unknown to every tool, file and server, and must stay the same for a session.
    """
    message = b"".join(
        b"%d:%b" % (len(data), data) for data in (text.encode("utf-8", "surrogatepass") for text in texts)
    )
    attempt = 0
    while True:
        key = f"{attempt}:{secret}".encode("utf-8", "surrogatepass")
        nonce = hmac.new(key, message, hashlib.sha256).hexdigest()[:_DIGITS]
        if not any(nonce in text for text in texts):
            return nonce
        attempt += 1


def fenced(name: str, content: str, *, outcome: str, secret: str) -> str:
    """Return `content`, unchanged, in the fence of a result of the tool `name`."""
    nonce = nonce_of(secret, name, content, outcome)
    return f"[result {nonce} of {plain_name(name)}: {outcome}]\n{content}\n[end of result {nonce}]"
