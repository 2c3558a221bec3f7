"""Find the content of a web page: without navigation, advertising, forms and hidden text, and without layout tables.

Takes a parsed page (BeautifulSoup) and changes it. It is a heuristic: where too little is left, it keeps all of it.
"""

import re
from typing import Any

_ROLES = frozenset({"navigation", "banner", "contentinfo", "complementary", "search", "dialog", "alertdialog", "menu"})
_NEVER = ("nav", "aside", "dialog", "button", "select", "input", "textarea", "menu")
_HIDDEN = re.compile(r"(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
_CHROME = re.compile(
    r"(?:^|[-_ ])(?:ads?|advert\w*|sponsor\w*|promo\w*|cookie\w*|consent|newsletter|subscribe|paywall|social"
    r"|shar(?:e|ing)|related|recommend\w*|trending|most-?(?:read|popular)|breadcrumbs?|comments?|disqus|sidebar|navbar"
    r"|navbox|navigation|menu|masthead|skip-?(?:link|to)|toolbar|printfooter|catlinks|mw-editsection|mw-jump-link)"
    r"(?:$|[-_ ])",
    re.IGNORECASE,
)
_MOST_DEPTH = 300
_MOST_PARTS = 3
"""Words of an id that is taken for a name."""
_LEAST = 400
"""Characters that a part has to have to be taken for the content."""
_SHARE = 0.4
"""Part of the page's text that is too much to be dropped by a name."""


def drop_all_but_content(soup: Any) -> Any:
    """Return the part of the page to convert, without what does not belong to its content.

    Raises RecursionError for a page that is nested too deeply.
    """
    _check_depth(soup)
    page = soup.body or soup
    total = len(page.get_text(" ", strip=True))
    _drop_hidden(page)
    found = _content(page)
    if len(found.get_text(" ", strip=True)) < min(_LEAST, total // 10):
        return page
    for tag in found(_NEVER):
        _drop(tag, most=total)
    for tag in found(_is_chrome):
        _drop(tag, most=total)
    if found is page:
        for tag in found(["header", "footer"]):
            if tag.find_parent(["article", "section", "main"]) is None and tag.find("h1") is None:
                _drop(tag, most=total)
    _unwrap_layout(found)
    return found


def _check_depth(soup: Any) -> None:
    """Raise RecursionError now rather than after seconds of work."""
    depths = {id(soup): 0}
    for tag in soup(True):
        depths[id(tag)] = depth = depths[id(tag.parent)] + 1
        if depth > _MOST_DEPTH:
            raise RecursionError


def _drop_hidden(page: Any) -> None:
    """Drop what a reader of the page does not see, where anyone may have written to the model."""
    for tag in page(lambda tag: tag.has_attr("hidden") or tag.get("aria-hidden") == "true" or _is_hidden(tag)):
        if not tag.decomposed:
            tag.decompose()


def _is_hidden(tag: Any) -> bool:
    return bool(_HIDDEN.search(tag.get("style") or ""))


def _content(page: Any) -> Any:
    """Return the part that the page itself calls its main part, else its only large article, else all of it."""
    mains = [tag for tag in page(_is_main) if tag.find_parent(_is_main) is None]
    if len(mains) == 1 and len(mains[0].get_text(" ", strip=True)) >= _LEAST:
        return mains[0]
    articles = [tag for tag in page("article") if tag.find_parent("article") is None]
    sizes = [len(tag.get_text(" ", strip=True)) for tag in articles]
    if articles and max(sizes) >= max(_LEAST, 2 * (sum(sizes) - max(sizes))):
        return articles[sizes.index(max(sizes))]
    return page


def _is_main(tag: Any) -> bool:
    return bool(tag.name == "main" or tag.get("role") == "main")


def _is_chrome(tag: Any) -> bool:
    if tag.get("role") in _ROLES:
        return True
    # The id of a section is often made of its title, which may begin with any word.
    id = tag.get("id") or ""
    names = [*(tag.get("class") or ()), *([id] if len(re.split("[-_]", id)) <= _MOST_PARTS else [])]
    return tag.name not in {"body", "main", "article"} and any(_CHROME.search(name) for name in names)


def _drop(tag: Any, *, most: int) -> None:
    if not tag.decomposed and len(tag.get_text(" ", strip=True)) < most * _SHARE:
        tag.decompose()


def _unwrap_layout(found: Any) -> None:
    """Turn tables that only place things on the page into plain blocks: Markdown has no table in a table."""
    for table in reversed(found("table")):
        rows = [row for row in table("tr") if row.find_parent("table") is table]
        widest = max((len(row(["td", "th"], recursive=False)) for row in rows), default=0)
        for caption in table("caption", recursive=False):
            # Before the table, because its first row would not be a heading otherwise.
            caption.name = "p"
            table.insert_before(caption.extract())
        if table.get("role") == "presentation" or table.find("table") is not None or widest < 2 or len(rows) < 2:
            for tag in [table, *table(["thead", "tbody", "tfoot", "tr", "td", "th"])]:
                if tag is table or tag.find_parent("table") in (table, None):
                    tag.name = "div"
