"""Approve whatever waits in the database of ``CHATOPS_STORE``, until this process is killed.

A call whose outcome is unknown is left unknown.
"""

import os
import time

from chatops.domain.decisions import Approved, Principal, Rejected
from chatops.domain.errors import StoreError
from chatops.engine.inputs import DecideCall
from chatops.store.postgres import Postgres
from chatops.store.store import Store

BY = Principal(uid=os.getuid(), login="approver", via="approvals")


def approve_all(store: Store, *, but: int = 0) -> int:
    """Decide the calls that wait, except the last `but` of them. Return how many."""
    waiting = [row.pending for row in store.pending_calls() if row.decided is None]
    for one in waiting[: len(waiting) - but]:
        decision = Rejected(reason="unknown") if one.outcome_unknown else Approved()
        store.post_decision(DecideCall(call_id=one.call.id, digest=one.digest, decision=decision, by=BY))
    return len(waiting) - but


if __name__ == "__main__":
    while True:
        try:
            opened = Store(Postgres(os.environ["CHATOPS_STORE"]))
            while True:
                approve_all(opened)
                time.sleep(0.2)
        except StoreError:
            time.sleep(0.2)
