"""Patterns that repeat a group without backtracking, right on every Python 3.11."""


def possessive(body: str, times: str = "*") -> str:
    """Return the pattern `(?:body)*+`; `times` may be another quantifier.

    Before 3.11.5, Python counts what a last, failed repetition has passed as matched: `(?:<.*>)*+` matches the first
    character of `<a`, see CPython's issue 106052. An alternative that never matches takes it back to where that
    repetition began.
    """
    return rf"(?:{body}|(?!)){times}+"
