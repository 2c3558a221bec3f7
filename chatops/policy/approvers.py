"""Who may let a call run where a registry names approvers (`approver` of a tool): other, a role, a level."""

from collections.abc import Collection, Sequence

from chatops.domain.decisions import Principal
from chatops.domain.tools import AccessLevel

OTHER = "other"


def words(needed: Sequence[str]) -> str:
    """Return who may approve, as a phrase."""
    phrases = (
        "someone else than who requested it"
        if one == OTHER
        else f"a member of {one[1:]}"
        if one.startswith("@")
        else f"access level {one} or higher"
        for one in needed
    )
    return ", and ".join(phrases)


def why_not(
    needed: Sequence[str],
    by: Principal,
    *,
    requester: str,
    level: AccessLevel | None,
    groups: Collection[str] | None,
) -> str:
    """Return why `by` may not let a call run whose approvers are `needed`, as a clause; empty if it may.

    `requester` is the role of the database that requested the call, or in a file the user, as ``uid 1000``. `level` is
    the level of `by`; None: it has none, or it is not known. `groups` are the roles among `needed` that it is a member
    of; None: there are no roles.
    """
    if needed and (not by.is_person or by.via == "acp"):
        return "no rule, program or editor approves it"
    for one in needed:
        if one == OTHER:
            if requester in ("", by.member or f"uid {by.uid}"):
                return f"someone else than {requester or 'who requested it'} has to"
        elif one.startswith("@"):
            if groups is None:
                return f"{one} is a role of a team's database, and the sessions are in a file"
            if one[1:] not in groups:
                return f"a member of {one[1:]} has to"
        elif level is None or level < AccessLevel[one.upper()]:
            return f"access level {one} is needed"
    return ""
