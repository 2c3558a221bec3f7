"""Approvers: the people that a registry names for a tool (`approver`). Only they can approve its calls.

Each one is ``other`` (not the requester), ``@ROLE`` (a member of that database role) or the lowest access level.
"""

from collections.abc import Collection, Sequence

from chatops.domain.decisions import Principal
from chatops.domain.tools import AccessLevel

OTHER = "other"
"""The approver that is anyone but the requester."""


def approvers_phrase(needed: Sequence[str]) -> str:
    """Return `needed` for the user: ``a member of dba, and access level admin or higher``."""
    phrases = (
        "someone else than who requested it"
        if approver == OTHER
        else f"a member of {approver[1:]}"
        if approver.startswith("@")
        else f"access level {approver} or higher"
        for approver in needed
    )
    return ", and ".join(phrases)


def why_cannot_approve(
    needed: Sequence[str], by: Principal, *, requester: str, level: AccessLevel | None, groups: Collection[str] | None
) -> str:
    """Return why `by` cannot approve a call whose approvers are `needed`, as a clause; empty if it can.

    `requester` is the role of the database that requested the call, or in a file the user, as ``uid 1000``. `level` is
    the level of `by`; None: it has none, or it is not known. `groups` are the roles among `needed` that it is a member
    of; None: there are no roles.
    """
    if needed and (not by.is_person or by.via == "acp"):
        return "no rule, program or editor approves it"
    for approver in needed:
        if approver == OTHER:
            if requester in ("", by.member or f"uid {by.uid}"):
                return f"someone else than {requester or 'who requested it'} has to"
        elif approver.startswith("@"):
            if groups is None:
                return f"{approver} is a role of a team's database, and the sessions are in a file"
            if approver[1:] not in groups:
                return f"a member of {approver[1:]} has to"
        elif level is None or level < AccessLevel[approver.upper()]:
            return f"access level {approver} is needed"
    return ""
