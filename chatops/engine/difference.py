"""Description of what changed in a call since it was approved, for the user who is asked again."""

from collections.abc import Iterator

from chatops.domain.tools import CallFacts

_SHOWN = 3
"""Number of changes that are named. Further ones are only counted."""


def difference(before: CallFacts, after: CallFacts) -> str:
    """Return what differs between two inspections of a call, as clauses."""
    found = list(_differences(before, after)) or ["the tool, its arguments or the role it runs under"]
    more = f"; {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return "; ".join(found[:_SHOWN]) + more


def _differences(before: CallFacts, after: CallFacts) -> Iterator[str]:
    was, now = _contents(before), _contents(after)
    for path in dict.fromkeys((*was, *now)):
        if was.get(path) != now.get(path):
            yield f"the content of {path}"
    for name, old, new in (
        ("the command", before.command, after.command),
        ("the program that runs it", before.interpreter, after.interpreter),
        ("the words of the command", before.argv, after.argv),
        ("the folder it runs in", before.cwd, after.cwd),
        ("the files it touches", before.paths, after.paths),
        ("the hosts it contacts", before.hosts, after.hosts),
        ("the change it makes", (before.diff, _becomes(before)), (after.diff, _becomes(after))),
    ):
        if old != new and not (name.startswith("the change") and was != now):
            yield name
    if before.sandbox != after.sandbox:
        yield f"the sandbox, now: {after.sandbox or 'none'}"
    if before.network != after.network:
        yield f"the network, now: {'yes' if after.network else 'no'}"


def _contents(facts: CallFacts) -> dict[str, str]:
    """Return the digests of the files before the call, by path."""
    pairs = (entry.rpartition(" ") for entry in facts.hashes)
    return {path: digest for path, _, digest in pairs if not path.endswith(" becomes")}


def _becomes(facts: CallFacts) -> tuple[str, ...]:
    return tuple(entry for entry in facts.hashes if entry.rpartition(" ")[0].endswith(" becomes"))
