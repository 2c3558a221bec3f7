"""The one boundary between untrusted text and the screen: no text may control the terminal or hide.

Toolkits write control characters through to the terminal or drop them. Dropping is worse: a dialog then shows other
text than what would run. So every such character is replaced by something visible: C0 controls by their picture
(``␛``), the rest by its code point (``<U+202E>``). The rules follow ECMA-48 (C0, C1), UAX #9 (bidirectional controls)
and the Default_Ignorable_Code_Point property of UAX #44.

Why not a library: those that clean text for a terminal (Rich's control codes, Click's `strip_ansi`, blessed's
`strip_seqs`) remove what they find, and know escape sequences only, not bidirectional or zero-width characters.
"""

import re
import unicodedata

# Patterns are kept as text, which `re` compiles at the first use: most texts of a first screen need none of them.
_INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ufdd0-\ufdef\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffc\ufffe\uffff"
    "\U0001107f\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff\U0010eeee"
)
"""Zero-width, bidirectional, filler, tag and separator characters, non-characters, and the cell of an image."""

_C1 = "\x7f-\x9f"
_SURROGATES = "\ud800-\udfff"
_SELECTORS = "\ufe0e\ufe0f"
"""Variation selectors: each picks the emoji or text form of the character before it."""
_STACKED_SELECTORS = f"(?<=[{_SELECTORS}])[{_SELECTORS}]+"
"""Selectors after the first one: a run of them carries data."""

_SIGN = r"[^\w\s\x00-\u02ff]"
"""A sign that is no letter. Among these are the marks that are drawn over the character before them."""
_MAX_MARKS = 8
"""Marks over one character that any script may need. Terminals draw fewer, and a run of them carries data."""
_MAX_MARKS_REVEALED = 2
"""Marks over one character that every terminal draws."""

# What `sanitize` replaces, in three versions: CR is in the first only, the line feed in the last only.
_HIDDEN_IN_TEXT = f"[\x00-\x08\x0b-\x1f{_C1}{_SURROGATES}{_INVISIBLE}]"
HIDDEN = f"[\x00-\x08\x0b\x0c\x0e-\x1f{_C1}{_SURROGATES}{_INVISIBLE}]"
_HIDDEN_IN_LINE = f"[\x00-\x08\x0a-\x1f{_C1}{_SURROGATES}{_INVISIBLE}]"
_TERMINAL_ONLY = f"[\x00-\x08\x0b\x0c\x0e-\x1f{_C1}]|\r(?!\n)"
"""Controls that a terminal obeys; a CR before a line feed is a line end."""
_MAX_REPLACED_SINGLY = 24
"""Different characters that are replaced one by one, which is faster than `str.translate` for so few."""

_EMOJI = "[\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]\ufe0f?[\U0001f3fb-\U0001f3ff]?"
_JOINING_LETTERS = "\u0600-\u08ff\u0900-\u0dff"
"""Arabic and the scripts of South Asia, whose letters change their shape next to another one."""
_NORMAL_JOINERS = (
    rf"(?P<kept>{_EMOJI}(?:\u200d{_EMOJI}){{1,6}}|(?<=[{_JOINING_LETTERS}])\u200c(?=[{_JOINING_LETTERS}]))"
    rf"|(?<=[{_JOINING_LETTERS}])\u200d"
)
"""Joiners that occur in normal prose: in an emoji made of several, and where they shape a letter."""
JOINED_EMOJI = rf"({_EMOJI}(?:\u200d{_EMOJI})+)"
"""An emoji sequence, as the only group."""

_ODD_SPACES = "[\u00a0\u1680\u2000-\u200a\u202f\u205f\u2800\u3000]"
_TRAILING_SPACES = r" +(?=\n|\Z)"
_LOOKALIKE_ALPHABETS = "[\u0370-\u03ff\u0400-\u052f\u0530-\u058f\uff21-\uff5a]"
_LATIN_SHAPES = (
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0455\u0458\u04bb\u0501\u051b\u051d\u04cf\u0475"
    "\u0410\u0412\u0415\u0405\u0406\u0408\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0423\u051a\u051c"
    "\u03b1\u03b5\u03b9\u03ba\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7"
    "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7"
    "\u0585\u0578\u057d\u0570\u0581\u0575\u0555\u054d\u054f\u053c"
)
"""Cyrillic, Greek and Armenian letters that are drawn like a Latin one."""
_PLAIN_SHAPES = f"[^{_LATIN_SHAPES}\\W\\d_]"
"""A letter that is drawn like no Latin one."""
_FOREIGN_WORD = r"(?<!\w)[\u0370-\u058f\d_]++"
_FOREIGN_WORDS = rf"{_FOREIGN_WORD}(?!\w)(?:(?=[^\w\s-]{{0,3}}[\s-])\W{{1,6}}{_FOREIGN_WORD}(?!\w))*"
"""Words of these alphabets, with spaces or hyphens between them: a text, or what shall look like Latin words."""
_WORD = r"\w+"

TAB_WIDTH = 4


def sanitize(text: str, *, newlines: bool = True, prose: bool = False) -> str:
    """Return `text` in a form that is safe to show: control and invisible characters made visible, tabs as spaces.

    With `newlines` the line feed stays and CR LF counts as one; a lone CR is always shown. Without, every line feed is
    shown as ``␊``, so that the result is one line. Time is linear in the length.

    In `prose`, joiners stay where they are normal: between the parts of an emoji (👩‍👩‍👧), and as the non-joiner within
    a word of a script that joins its letters. A joiner that only shapes such a letter is removed, because libraries and
    terminals disagree on its width.
    """
    if text.isascii() and text.isprintable():
        return text
    if newlines and "\r" in text:
        text = text.replace("\r\n", "\n")
    hidden = set(re.findall(_HIDDEN_IN_TEXT if newlines else _HIDDEN_IN_LINE, text))
    text = _replace_but_joiners(text, hidden) if prose and hidden & {"\u200c", "\u200d"} else _replace_all(text, hidden)
    if "\ufe0f" in text or "\ufe0e" in text:
        text = re.sub(_STACKED_SELECTORS, lambda found: "".join(map(_code_point, found[0])), text)
    if not text.isascii():
        text = re.sub(rf"{_SIGN}{{{_MAX_MARKS + 1},}}", _spell_stacked_marks, text)
    return text.expandtabs(TAB_WIDTH) if "\t" in text else text


def for_pipe(text: str) -> str:
    """Return `text` for a pipe or a file: unchanged except for what only a terminal obeys.

    A pipe often ends on a terminal after all (``| tee``, ``| head``, ``cat``), so C0 and C1 controls are shown as
    `sanitize` shows them. Tabs, line feeds and CR LF stay, and so does everything that can be part of a text.
    """
    if text.isascii() and text.isprintable():
        return text
    return re.sub(_TERMINAL_ONLY, lambda found: _visible_form(found[0]), text)


def reveal(text: str, *, newlines: bool = True, strict: bool = False) -> str:
    """Return `text` for a dialog: as `sanitize`, and with everything visible that could be overlooked.

    Shows tabs (``␉``), every CR, spaces at the end of a line (``·``), spaces that are not the plain space, letters of
    another alphabet inside a word that also has Latin ones (``а<U+0430>``), words that consist of letters that look
    like Latin ones, and marks that are drawn over other marks or over what is not a letter.

    Such a word stays as it is in a text of its alphabet: if a word beside it has a letter that no Latin one looks like.
    In what is `strict` (command lines, paths), it is marked there too.
    """
    text = text.replace("\r", "␍")
    text = sanitize(text.replace("\t", "␉\t"), newlines=newlines)
    text = re.sub(_TRAILING_SPACES, lambda found: "·" * len(found[0]), text)
    if text.isascii():
        return text
    text = re.sub(_ODD_SPACES, lambda found: _code_point(found[0]), text)
    text = re.sub(f"{_SIGN}+", _spell_doubtful_marks, text)
    if re.search(_LOOKALIKE_ALPHABETS, text):
        text = re.sub(_FOREIGN_WORDS, lambda found: _mark_words(found[0], strict=strict), text)
        text = re.sub(_WORD, _mark_mixed_word, text)
    return text


def _replace_all(text: str, hidden: set[str]) -> str:
    if len(hidden) > _MAX_REPLACED_SINGLY:
        return text.translate({ord(character): _visible_form(character) for character in hidden})
    for character in hidden:
        text = text.replace(character, _visible_form(character))
    return text


def _replace_but_joiners(text: str, hidden: set[str]) -> str:
    parts, begin = [], 0
    for found in re.finditer(_NORMAL_JOINERS, text):
        parts += [_replace_all(text[begin : found.start()], hidden), found["kept"] or ""]
        begin = found.end()
    return "".join([*parts, _replace_all(text[begin:], hidden)])


def _visible_form(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else _code_point(character)


def _code_point(character: str) -> str:
    return f"<U+{ord(character):04X}>"


def _spell_stacked_marks(found: re.Match[str]) -> str:
    return _spell_excess_marks(found[0], most=_MAX_MARKS, room=_MAX_MARKS)


def _spell_doubtful_marks(found: re.Match[str]) -> str:
    before = found.string[found.start() - 1 : found.start()]
    return _spell_excess_marks(found[0], most=_MAX_MARKS_REVEALED, room=_MAX_MARKS_REVEALED if before.isalnum() else 0)


def _spell_excess_marks(signs: str, *, most: int, room: int) -> str:
    """Return `signs` with further marks replaced by code points.

    Each sign keeps at most `most` marks, and `room` is how many more fit on what precedes `signs`.
    """
    out: list[str] = []
    for sign in signs:
        if sign in _SELECTORS:
            out.append(sign)
        elif unicodedata.category(sign) not in {"Mn", "Me"}:
            out.append(sign)
            room = most
        elif room:
            out.append(sign)
            room -= 1
        else:
            out.append(_code_point(sign))
    return "".join(out)


def _mark_words(run: str, *, strict: bool) -> str:
    """Mark the letters of each word in `run` that has only letters that are drawn like Latin ones.

    Unless `strict`, a run stays as it is if one of its letters is drawn like no Latin one, or if it is a single letter.
    """
    if not strict and (re.search(_PLAIN_SHAPES, run) or len(re.findall(f"[{_LATIN_SHAPES}]", run)) == 1):
        return run
    return re.sub(_WORD, lambda word: word[0] if re.search(_PLAIN_SHAPES, word[0]) else _with_code_points(word[0]), run)


def _with_code_points(word: str) -> str:
    return re.sub(_LOOKALIKE_ALPHABETS, lambda letter: letter[0] + _code_point(letter[0]), word)


def _mark_mixed_word(found: re.Match[str]) -> str:
    """Mark the letters of other alphabets in a word that has Latin ones too."""
    word = found[0]
    return _with_code_points(word) if re.search("[A-Za-z]", word) else word


def show_path(path: str) -> str:
    """Return a path on one line with nothing hidden, in quotes if a space or line break could make it look like two."""
    shown = reveal(path, newlines=False, strict=True)
    return f'"{shown}"' if any(char.isspace() for char in path) or shown != path else shown
