"""Front matter of Markdown files: keys and values in YAML between two lines ``---``, before the text."""

import re

_FRONT_MATTER = re.compile(r"---\n(?P<yaml>.*?)^---(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_PLAIN_LINE = re.compile(r"name: [a-z]{6,}|description: [A-Za-z][A-Za-z ,;()'-]* [a-z]+\.")
"""A line whose value is text in YAML, whatever the words are.

No value is a word that YAML reads otherwise: the longest of them, ``false``, has five letters.
"""


def split_front_matter(text: str) -> tuple[dict[object, object], str, str]:
    """Split a file into front matter and text; the third value says what is wrong, then the file is not used."""
    if not text.startswith("---\n"):
        return {}, text, ""
    found = _FRONT_MATTER.match(text)
    if found is None:
        return {}, "", "its front matter is not closed with a line ---; it is not used."
    lines, body = found["yaml"].splitlines(), text[found.end() :]
    if all(_PLAIN_LINE.fullmatch(line) for line in lines):
        return {key: value for key, _, value in (line.partition(": ") for line in lines)}, body, ""
    import yaml  # slow to import, and the packaged personas do not need it

    try:
        matter = yaml.safe_load(found["yaml"])
    except (yaml.YAMLError, RecursionError, ValueError):
        return {}, "", "its front matter is not valid YAML; it is not used."
    if matter is None:
        return {}, body, ""
    if not isinstance(matter, dict):
        return {}, "", "its front matter has to be keys and values; it is not used."
    return matter, body, ""
