"""Convert the bytes of a web page to text.

With `markdownify` (the extra ``[web]``) the content of a page becomes Markdown, with tables, code blocks and absolute
links. Otherwise `read_text` uses the standard library alone, and makes lines of cells from tables. Megabytes of HTML
and broken nesting are no problem for it.

The content is found by a heuristic: without navigation, advertising, forms and hidden text, and without layout tables.
Where too little is left, it keeps all of the page.

Readers run in an isolated subprocess, because a page can be written so that parsing it takes hours.
"""

import codecs
import importlib
import importlib.util
import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin

from chatops.domain.canonical import JsonValue

Reader = Callable[[str, str], JsonValue]
"""Returns title and text of a page, given its HTML and its URL: a list, which comes from the subprocess as JSON."""

_SILENT_TAGS = frozenset({"script", "style", "noscript", "template", "svg", "head", "iframe", "object", "canvas"})
"""Elements whose text no reader of the page sees."""
_BLOCKS = frozenset(
    "address article aside blockquote br dd details dialog div dl dt fieldset figure footer form h1 h2 h3 h4 h5 h6 "
    "header hr li main nav ol p pre section summary table tbody tfoot thead tr ul".split()
)
_META_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_-]{1,40})", re.IGNORECASE)

_META_BYTES = 2_048
"""Bytes at the start of a page in which its own charset is looked for; HTML wants it in the first 1,024."""
_MAX_TITLE = 300
"""Characters of a title that are kept."""
_MAX_LINK = 500
"""Characters of an address that is kept as a link. A longer one is dropped: cut off it would lead elsewhere."""
_MAX_WRITTEN_LINK = 300
"""Characters of an address in plain text, where a longer one is cut."""
_HOST_NAME_CODECS = frozenset({"idna", "punycode"})
"""Text codecs of Python that are made for host names; decoding a page with one can take hours."""
_OUTER_ROLES = frozenset(
    {"navigation", "banner", "contentinfo", "complementary", "search", "dialog", "alertdialog", "menu"}
)
_OUTER_TAGS = ("nav", "aside", "dialog", "button", "select", "input", "textarea", "menu")
"""Roles and tags of what surrounds the content."""
_HIDDEN = re.compile(r"(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
_OUTER_NAME = re.compile(
    r"(?:^|[-_ ])(?:ads?|advert\w*|sponsor\w*|promo\w*|cookie\w*|consent|newsletter|subscribe|paywall|social"
    r"|shar(?:e|ing)|related|recommend\w*|trending|most-?(?:read|popular)|breadcrumbs?|comments?|disqus|sidebar|navbar"
    r"|navbox|navigation|menu|masthead|skip-?(?:link|to)|toolbar|printfooter|catlinks|mw-editsection|mw-jump-link)"
    r"(?:$|[-_ ])",
    re.IGNORECASE,
)
"""Classes and ids of what surrounds the content, as their authors name them."""
_MAX_DEPTH = 300
"""Elements inside each other."""
_MAX_ID_WORDS = 3
"""Words of an id that is compared with `_OUTER_NAME`. A longer one may be made of a title."""
_MIN_CONTENT = 400
"""Characters that the content has at least."""
_MAX_SHARE = 0.4
"""Share of the page's text from which on an element is not dropped, whatever its name."""


def drop_all_but_content(soup: Any) -> Any:
    """Return the part of the page to convert, without what does not belong to its content.

    Raises RecursionError for a page that is nested too deeply.
    """
    _check_depth(soup)
    page = soup.body or soup
    total = len(page.get_text(" ", strip=True))
    _drop_hidden(page)
    content = _find_content(page)
    if len(content.get_text(" ", strip=True)) < min(_MIN_CONTENT, total // 10):
        return page
    for tag in (*content(_OUTER_TAGS), *content(_surrounds_content)):
        _drop_if_small(tag, page_size=total)
    if content is page:
        for tag in content(["header", "footer"]):
            if tag.find_parent(["article", "section", "main"]) is None and tag.find("h1") is None:
                _drop_if_small(tag, page_size=total)
    _unwrap_layout(content)
    return content


def _check_depth(soup: Any) -> None:
    """Raise RecursionError now rather than after seconds of work."""
    depths = {id(soup): 0}
    for tag in soup(True):
        depths[id(tag)] = depth = depths[id(tag.parent)] + 1
        if depth > _MAX_DEPTH:
            raise RecursionError


def _drop_hidden(page: Any) -> None:
    """Drop what a user who reads the page does not see: instructions to the model may be hidden there."""

    def is_hidden(tag: Any) -> bool:
        by_attribute = tag.has_attr("hidden") or tag.get("aria-hidden") == "true"
        return by_attribute or _HIDDEN.search(tag.get("style") or "") is not None

    for tag in page(is_hidden):
        if not tag.decomposed:
            tag.decompose()


def _find_content(page: Any) -> Any:
    """Return the part that the page itself calls its main part, else its only large article, else all of it."""
    mains = [tag for tag in page(_is_main) if tag.find_parent(_is_main) is None]
    if len(mains) == 1 and len(mains[0].get_text(" ", strip=True)) >= _MIN_CONTENT:
        return mains[0]
    articles = [tag for tag in page("article") if tag.find_parent("article") is None]
    sizes = [len(tag.get_text(" ", strip=True)) for tag in articles]
    if articles and max(sizes) >= max(_MIN_CONTENT, 2 * (sum(sizes) - max(sizes))):
        return articles[sizes.index(max(sizes))]
    return page


def _is_main(tag: Any) -> bool:
    return bool(tag.name == "main" or tag.get("role") == "main")


def _surrounds_content(tag: Any) -> bool:
    if tag.get("role") in _OUTER_ROLES:
        return True
    id = tag.get("id") or ""
    names = [*(tag.get("class") or ()), *([id] if len(re.split("[-_]", id)) <= _MAX_ID_WORDS else [])]
    return tag.name not in {"body", "main", "article"} and any(_OUTER_NAME.search(name) for name in names)


def _drop_if_small(tag: Any, *, page_size: int) -> None:
    """Drop an element unless it holds much of the page. A part of a dropped one is dropped already."""
    if not tag.decomposed and len(tag.get_text(" ", strip=True)) < page_size * _MAX_SHARE:
        tag.decompose()


def _unwrap_layout(content: Any) -> None:
    """Turn tables that only place things on the page into plain blocks: Markdown has no table in a table."""
    for table in reversed(content("table")):
        rows = [row for row in table("tr") if row.find_parent("table") is table]
        widest = max((len(row(["td", "th"], recursive=False)) for row in rows), default=0)
        for caption in table("caption", recursive=False):
            # Moved before the table: `markdownify` takes a row for the heading only if it is the first thing in it.
            caption.name = "p"
            table.insert_before(caption.extract())
        if table.get("role") == "presentation" or table.find("table") is not None or widest < 2 or len(rows) < 2:
            for tag in [table, *table(["thead", "tbody", "tfoot", "tr", "td", "th"])]:
                if tag is table or tag.find_parent("table") in (table, None):
                    tag.name = "div"


def decode_page(data: bytes, *, charset: str) -> str:
    """Decode `data` by its byte order mark, the header's charset, the page's own one, or UTF-8. Never raises."""
    if data.startswith(codecs.BOM_UTF8):
        return data[3:].decode("utf-8", "replace")
    declared = _META_CHARSET.search(data[:_META_BYTES])
    for name in (charset, declared[1].decode("ascii") if declared else "", "utf-8"):
        try:
            if not name:
                continue
            codec = codecs.lookup(name)
            # Only text encodings: Python also has codecs that decompress.
            if codec._is_text_encoding and codec.name not in _HOST_NAME_CODECS:
                return data.decode(name, "replace")
        except (LookupError, ValueError):
            continue
    return data.decode("utf-8", "replace")


def readers() -> tuple[Reader, ...]:
    """Return the readers to try, best first."""
    installed = importlib.util.find_spec("markdownify") is not None
    return (read_markdown, read_text) if installed else (read_text,)


def read_markdown(html: str, url: str) -> JsonValue:
    """Return title and text as Markdown. Raises RecursionError for a page that is nested too deeply."""
    # Optional dependencies, so they are imported here.
    soup: Any = importlib.import_module("bs4").BeautifulSoup(html, "html.parser")
    converter: Any = importlib.import_module("markdownify").MarkdownConverter
    title = soup.title.get_text() if soup.title else ""
    base = soup.find("base", href=True)
    start = (base and _absolute_address(base["href"], url)) or url
    for tag in soup(list(_SILENT_TAGS)):
        if not tag.decomposed:
            tag.decompose()
    part = drop_all_but_content(soup)
    for image in part("img"):
        image.replace_with(image.get("alt") or "")
    _resolve_links(part, url, base=start)
    settings = {"heading_style": "ATX", "bullets": "-", "escape_asterisks": False, "escape_underscores": False}
    text = converter(**settings, table_infer_header=True).convert_soup(part)
    return [_clean_title(title), re.sub(r"\n{3,}", "\n\n", text).strip()]


def _resolve_links(part: Any, url: str, *, base: str) -> None:
    """Make the addresses of links absolute. A link that leads nowhere, or to a place of the page itself, is text."""
    here = url.partition("#")[0]
    for link in part("a"):
        address = link.get("href") or ""
        target = "" if address.startswith("#") else _absolute_address(address, base)
        if not target or target.partition("#")[0] == here or not link.get_text(strip=True):
            link.unwrap()
        else:
            link.attrs = {"href": target}


def read_text(html: str, url: str) -> JsonValue:
    """Return title and text, with headings marked as such and links as they are written: a relative one stays so."""
    reader = PageReader()
    reader.feed(html)
    reader.close()
    lines = [" ".join(line.split()) for line in "".join(reader.pieces).split("\n")]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    return [_clean_title("".join(reader.title)), text]


def _clean_title(text: str) -> str:
    return " ".join(text.split())[:_MAX_TITLE]


def _absolute_address(address: str, url: str) -> str:
    """Return the address of a link, resolved; empty if it leads nowhere on the web or is too long to be of use."""
    try:
        absolute = urljoin(url, address)
    except ValueError:
        return ""
    return absolute if absolute.startswith(("http://", "https://")) and len(absolute) <= _MAX_LINK else ""


class PageReader(HTMLParser):
    """Collects the text of a page in `pieces`."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self.title: list[str] = []
        self._silent: list[str] = []
        """The open `_SILENT_TAGS`, outermost first."""
        self._in_title = False
        self._links: list[str] = []
        """The addresses of the open links, outermost first."""

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        """Treat an unknown ``<![`` section as a comment, as browsers do; the base class would raise an error."""
        return self.parse_bogus_comment(i, report)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Break the line at blocks, and mark headings, list items and cells."""
        if tag == "title":
            self._in_title = True
        elif tag in _SILENT_TAGS:
            self._silent.append(tag)
        elif tag == "body":
            # Elements that were left open in the head end here.
            self._silent.clear()
        elif tag in _BLOCKS:
            self.pieces.append("\n")
            if tag in {"h1", "h2", "h3"}:  # Deeper ones get no mark.
                self.pieces.append("#" * int(tag[1]) + " ")
            elif tag == "li":
                self.pieces.append("- ")
        elif tag in {"td", "th"}:
            self.pieces.append(" | ")
        elif tag == "a":
            self._links.append(dict(attrs).get("href") or "")

    def handle_endtag(self, tag: str) -> None:
        """Break the line after blocks, and write the address after a link."""
        if tag == "title":
            self._in_title = False
        elif tag in self._silent:
            # With it end the elements inside of it that were left open.
            del self._silent[self._silent.index(tag) :]
        elif tag in _BLOCKS:
            self.pieces.append("\n")
        elif tag == "a" and self._links:
            address = self._links.pop()
            if address.startswith(("http://", "https://", "/")) and not self._silent:
                self.pieces.append(f" ({address[:_MAX_WRITTEN_LINK]})")

    def handle_data(self, data: str) -> None:
        """Keep the text, or a title."""
        if self._in_title:
            self.title.append(data)
        elif not self._silent:
            self.pieces.append(data)
