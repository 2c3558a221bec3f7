"""Convert the bytes of a web page to text, without scripts, styles and markup."""

import codecs
import re
from html.parser import HTMLParser

from chatops.domain.canonical import JsonValue

_SILENT = frozenset({"script", "style", "noscript", "template", "svg", "head", "iframe", "object", "canvas"})
_BLOCKS = frozenset(
    "address article aside blockquote br dd details dialog div dl dt fieldset figure footer form h1 h2 h3 h4 h5 h6 "
    "header hr li main nav ol p pre section summary table tbody tfoot thead tr ul".split()
)
_META_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_-]{1,40})", re.IGNORECASE)

_FOR_NAMES = frozenset({"idna", "punycode"})
"""Text codecs of Python that are made for host names; decoding a page with one can take hours."""


def decoded(data: bytes, *, charset: str) -> str:
    """Decode `data` by its byte order mark, the header's charset, the page's own one, or UTF-8. Never raises."""
    if data.startswith(codecs.BOM_UTF8):
        return data[3:].decode("utf-8", "replace")
    found = _META_CHARSET.search(data[:2_048])
    for name in (charset, found[1].decode("ascii") if found else "", "utf-8"):
        try:
            if not name:
                continue
            codec = codecs.lookup(name)
            # Only text encodings: Python also has codecs that decompress.
            if codec._is_text_encoding and codec.name not in _FOR_NAMES:
                return data.decode(name, "replace")
        except (LookupError, ValueError):
            continue
    return data.decode("utf-8", "replace")


def read_page(html: str) -> JsonValue:
    """Return `text_of` as JSON for an isolated subprocess: a page can be written so that parsing takes hours."""
    return list(text_of(html))


def text_of(html: str) -> tuple[str, str]:
    """Return the title and the text of a page; links keep their address, headings their level."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    lines = [" ".join(line.split()) for line in "".join(reader.pieces).split("\n")]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    return " ".join("".join(reader.title).split())[:300], text


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self.title: list[str] = []
        self._silent: list[str] = []
        self._in_title = False
        self._links: list[str] = []

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        """Treat an unknown ``<![`` section as a comment, as browsers do; the base class would raise an error."""
        return self.parse_bogus_comment(i, report)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title":
            self._in_title = True
        elif tag in _SILENT:
            self._silent.append(tag)
        elif tag == "body":
            # Elements that were left open in the head end here.
            self._silent.clear()
        elif tag in _BLOCKS:
            self.pieces.append("\n")
            if tag in {"h1", "h2", "h3"}:
                self.pieces.append("#" * int(tag[1]) + " ")
            elif tag == "li":
                self.pieces.append("- ")
        elif tag in {"td", "th"}:
            self.pieces.append(" | ")
        elif tag == "a":
            self._links.append(dict(attrs).get("href") or "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        elif tag in self._silent:
            del self._silent[self._silent.index(tag) :]
        elif tag in _BLOCKS:
            self.pieces.append("\n")
        elif tag == "a" and self._links:
            address = self._links.pop()
            if address.startswith(("http://", "https://", "/")) and not self._silent:
                self.pieces.append(f" ({address[:300]})")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title.append(data)
        elif not self._silent:
            self.pieces.append(data)
