"""Small parts of sentences and of lines, worded and cut in one way everywhere."""

from chatops.domain.sanitize import sanitize

_LEAST_SHOWN = 0.0001
"""Dollars below which a cost would be shown as nothing."""


def plural(count: int, one: str, many: str = "") -> str:
    """Return the count with its noun: ``1 call``, ``3 calls``, ``2 processes`` (`many` where an s is not enough)."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def sentence(clause: str) -> str:
    """Return a clause as a sentence, with a capital letter and a full stop."""
    return clause[:1].upper() + clause[1:].removesuffix(".") + "."


def cut(text: str, *, most: int) -> str:
    """Return `text` if it has at most `most` characters, else its beginning with an ellipsis, `most` in all."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def one_line(text: str, *, most: int) -> str:
    """Return `text` on one line of about `most` characters, with control characters made visible."""
    # Split only a prefix: the text is untrusted and may be very long.
    head = " ".join(text[: 4 * most].split())
    cut_short = head if len(head) <= most and len(text) <= 4 * most else f"{head[:most]}…"
    return sanitize(cut_short, newlines=False)


def excerpt(text: str, wanted: str, *, around: int, before: int | None = None) -> str:
    """Return the first place of `wanted`, whatever the case, in one line with `around` characters on each side.

    `before` is their number on the left, if that is another one.
    """
    flat = " ".join(text.split())
    at = max(0, flat.casefold().find(wanted.casefold()))
    start, end = max(0, at - (around if before is None else before)), at + len(wanted) + around
    return ("…" if start else "") + flat[start:end] + ("…" if end < len(flat) else "")


def money(cost: float, *, cents_from: float) -> str:
    """Return a cost in dollars: to the cent from `cents_from` on, with two more digits below it."""
    if 0 < cost < _LEAST_SHOWN:
        return f"<${_LEAST_SHOWN}"
    return f"${cost:.2f}" if cost >= cents_from else f"${cost:.4f}"


def duration(milliseconds: int) -> str:
    """Return a duration such as ``12 ms``, ``3.4 s`` or ``2 min 05 s``."""
    if milliseconds < 1_000:
        return f"{milliseconds} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1_000:.1f} s"
    minutes, seconds = divmod(milliseconds // 1_000, 60)
    return f"{minutes} min {seconds:02d} s"


def spent(seconds: int) -> str:
    """Return a time that is still running, such as ``12 s`` or ``2 min 05 s``."""
    return f"{seconds} s" if seconds < 60 else duration(1_000 * seconds)
