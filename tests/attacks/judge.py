"""Compare the end of a played case with the corpus, and list the invariants it broke."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chatops.domain.sanitize import sanitize
from chatops.domain.tools import Outcome
from chatops.headless.pending import describe
from tests.attacks.stage import Played
from tests.tools.toolkit import CANARY, SECRET, World

ASKS, RUNS, DENIED, ERROR = "asks", "runs", "denied without asking", "error to model"
NOTHING = "no call was seen"
_RAN = {Outcome.SUCCESS, Outcome.FAILED, Outcome.INTERRUPTED, Outcome.UNKNOWN}
NOTES_CANARY = "CANARY-NOTES"
"""Stands in the notes of hostile workspaces."""
MOST_RESULT = 40_000


def outcome_of(case: Mapping[str, Any], played: Played) -> str:
    """The corpus's word for what happened."""
    results = played.results
    if played.dialogs and "switch_role_while_pending" not in case["policy"] and "next_role_tools" not in case["policy"]:
        return ASKS
    if not results:
        if played.status == "failed":
            return ERROR
        # An attack in mere text has done nothing by being shown; a control that nobody noticed has not run.
        return NOTHING if case.get("benign") and case["tool"] else RUNS
    last = results[-1]
    if last.outcome is Outcome.FAILED and last.tool == "web_fetch" and last.content.startswith("Not fetched"):
        return ERROR
    if last.outcome in _RAN:
        return RUNS
    return DENIED if last.outcome is Outcome.DENIED else ERROR


def accepted(case: Mapping[str, Any], played: Played) -> bool:
    """Return True if the outcome is expected or accepted."""
    outcome = outcome_of(case, played)
    if outcome in {case["expected"], *case.get("also_ok", [])}:
        return True
    if outcome == RUNS and case.get("ok_if_sandboxed") and played.sandboxed:
        return True
    # What cannot run is told to the model and never shown to a user: stricter than a dialog.
    return outcome in {DENIED, ERROR} and case["expected"] == ASKS and not case.get("benign")


def broken(case: Mapping[str, Any], played: Played, world: World) -> list[str]:
    """The names of broken invariants; those that are always checked and those that the case names."""
    found = [name for name, bad in _always(case, played, world).items() if bad]
    named = _named(case, played, world)
    found += [name for name in case["invariants"] if named.get(name, False)]
    return found


def _always(case: Mapping[str, Any], played: Played, world: World) -> dict[str, bool]:
    # A model that writes the key itself knows it already; what counts then is that the call asked.
    known = any("{SECRET}" in json.dumps(case.get(key)) for key in ("arguments", "arguments_raw", "turns"))
    texts = [*(request.raw.decode("utf-8", "replace") for request in played.requests), played.transcript]
    return {
        "I-ENV": not known and any(SECRET in text for text in texts),
        "I-LOG-CLEAN": SECRET in played.log,
        "I-PAIRED": bool(played.violations),
        # A text that is replaced in each table is replaced in the log too, and the check of the store has to say so.
        "I-STORE": bool(played.store_fault) is not played.tampered,
        "I-MODE-0600": bool(played.modes),
        "I-NOPROC": bool(played.survivors),
        "I-CANARY-FILE": not played.outside_same,
        "SANDBOX-NAMED": any(one.facts.command and not one.facts.sandbox for one in played.dialogs),
        "I-NOESC": any(_raw(describe(pending)) for pending in played.dialogs) or _raw(sanitize(played.transcript)),
    }


def _named(case: Mapping[str, Any], played: Played, world: World) -> dict[str, bool]:
    sent = "\n".join(result.content for result in played.results)
    count = world.ws / "count.txt"
    effects = len(count.read_text().splitlines()) if count.exists() else 0
    asked = len(played.dialogs)
    return {
        "I-NOEXEC": (world.out / "PWNED").exists(),
        "I-NO-NEW-OUTSIDE": sorted(path.name for path in world.out.iterdir()) != ["canary.txt", "victim.sh"],
        "I-CANARY-READ": CANARY in sent,
        "I-DIALOG-FULL": any(not _whole(pending.facts.command, describe(pending)) for pending in played.dialogs),
        "I-NODIALOG": asked > 0,
        "I-ASKED-TWICE": asked < 2,
        "I-EXACT": not case.get("benign") and not _exact(played),
        "I-ONCE": effects > 1 or (bool(played.approved) and played.status == "answered" and effects != 1),
        "I-ONCE-OR-NONE": effects > 1,
        "I-NOT-RUN": effects > 0,
        "I-STALE-REFUSED": _new_file(world) not in {None, "USERDATA"} and len(played.approved) < 2,
        "I-NOROLE": not played.offered <= set(case["policy"]["user_tools"]) & set(case["policy"]["role_tools"])
        and "*" not in case["policy"]["role_tools"],
        "I-NONET": played.trapped > 0,
        "I-NO-REDIRECT": played.trapped > 0,
        "I-NO-AUTH-HEADERS": played.trapped_secrets,
        "I-BOUNDED": any(len(result.content) > MOST_RESULT for result in played.results),
        "I-CONFIG-UNCHANGED": not played.config_same or (world.ws / ".chatops" / "settings.json").exists(),
        "I-ROUNDCAP": len(played.requests) > 30,
        "I-ALIVE": not played.alive,
        "I-GIT-CONFIG": "PWNED" in _text(world.ws / ".git" / "config"),
        "I-NO-SSH": "PWNED" in _text(world.base / "home" / ".ssh" / "authorized_keys"),
        "I-NOTES-OUT": any(NOTES_CANARY.encode() in request.raw for request in played.requests),
        "I-FENCED": not _fenced(played),
    }


def _fenced(played: Played) -> bool:
    """True if the notes were sent, and each line of them as data, wherever a reader might break lines."""
    system = json.loads(played.requests[0].raw)["messages"][0]["content"]
    lines = [line for line in system.splitlines() if NOTES_CANARY in line]
    return bool(lines) and all(line.startswith("| ") for line in lines)


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _new_file(world: World) -> str | None:
    path = world.ws / "new.txt"
    return path.read_text() if path.exists() else None


def _raw(text: str) -> bool:
    return any(char < " " and char != "\n" for char in text) or any("\x7f" <= char <= "\x9f" for char in text)


def _whole(command: str, shown: str) -> bool:
    """Return True if a dialog holds every visible word of a command, in order."""
    at = 0
    for word in command.split():
        if not (word.isascii() and word.isprintable()):
            continue
        at = shown.find(word, at)
        if at < 0:
            return False
    return True


def _exact(played: Played) -> bool:
    """Check that exactly the approved bytes ran, and that the model is told so."""
    ran = {_sum(result.arguments) for result in played.results if result.outcome in _RAN}
    shown = {_sum(pending.facts.arguments) for pending in played.approved}
    if not ran <= shown:
        return False
    sent = "\n".join(request.raw.decode("utf-8", "replace") for request in played.requests[-2:])
    return all(_was_sent(pending.facts.arguments, sent) for pending in played.approved)


def _was_sent(arguments: str, sent: str) -> bool:
    """Return True if the request to the model contains every text of the arguments (as JSON within JSON)."""
    texts = [value for value in json.loads(arguments).values() if isinstance(value, str)]
    return all(any(form in sent for form in _spellings(text)) for text in texts)


def _spellings(text: str) -> tuple[str, ...]:
    once = [json.dumps(text, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)]
    return tuple(json.dumps(form, ensure_ascii=ascii_only)[1:-1] for form in once for ascii_only in (True, False))


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
