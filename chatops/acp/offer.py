"""Which calls an editor may be asked about, and the words that stand for all of such a call.

Editors show a question in ways of their own. One shows the title of the call and nothing else, preselects the first
answer and takes Enter for it; others approve by themselves, or draw the title as Markdown. So a call is asked about
there only if one short line says all of it and means the same however it is drawn. Every other call stays pending for
the terminal, the page and ``chatops approvals``, which show everything.
"""

import re
import time
import unicodedata

from markdown_it import MarkdownIt

from chatops.domain.events import PendingCall
from chatops.domain.sandbox import NARROWEST
from chatops.domain.sanitize import reveal
from chatops.domain.tools import ENGINE_CALLS, shown_verb
from chatops.runtime.call_facts import Weight, asked_by
from chatops.runtime.call_sheet import call_sheet

LONGEST_LINE = 120
"""Characters of a call that is asked about in an editor: a longer one may be cut there."""
SOONEST_S = 0.5
"""Seconds after the question was sent in which nobody can have read it. An allow that comes sooner is void."""
_MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
_OTHER_MARKS = re.compile(r"[~^$|<>\\`]|==|\+\+|:\w+:| {2}|\*.*\*")
"""Marks that some editors draw beyond the standard: math, highlights, signs. Blanks in a row are drawn as one."""
_LATIN_TEXT = re.compile(r"[ -~À-ÖØ-öø-ÿ]+")
"""The characters that a line may have: letters of other scripts can be drawn like Latin ones."""
_REORDERING = ("R", "AL", "AN", "RLE", "RLO", "RLI", "LRE", "LRO", "LRI", "FSI", "PDF", "PDI")


def offer_line(pending: PendingCall) -> str:
    """Return the line that says all of a call that an editor may be asked about; empty for any other call."""
    sheet, facts = call_sheet(pending, now=time.time()), pending.facts
    sandbox_differs = facts.extra != NARROWEST or facts.lacks
    can_approve_once = any(offer.key == "a" for offer in sheet.offers)
    if sheet.warnings or sandbox_differs or pending.call.name in ENGINE_CALLS or not can_approve_once:
        return ""
    parts = [fact.value for fact in sheet.facts if fact.weight is Weight.CALL]
    parts += [f"{fact.label} {fact.value}" for fact in sheet.facts if fact.weight is Weight.EFFECT]
    verb = shown_verb(pending.call.name, pending.capabilities, pending.call.arguments)
    # The title of a server's tool is the server's word for it: a harmless one could stand for any of its tools.
    verb = pending.call.name if facts.server is not None else verb
    line = f"{verb}: {'; '.join(parts)}" if parts else verb
    line += f" (asked by {asked_by(pending)})" if pending.caller else ""
    return line if len(line) <= LONGEST_LINE and _LATIN_TEXT.fullmatch(line) and is_plain(line) else ""


def is_plain(line: str) -> bool:
    """Return True if a line is drawn as it is: nothing in it is hidden, reordered, or a mark of Markdown."""
    if not line.isprintable() or line != line.strip() or reveal(line, strict=True) != line or _OTHER_MARKS.search(line):
        return False
    if any(unicodedata.bidirectional(character) in _REORDERING for character in line):
        return False
    # As Markdown it is one paragraph that holds nothing but this text.
    tokens = _MARKDOWN.parse(line)
    if [token.type for token in tokens] != ["paragraph_open", "inline", "paragraph_close"]:
        return False
    return [(part.type, part.content) for part in tokens[1].children or []] == [("text", line)]
