"""The sink of the decision log: where heads of chains go that a site wants kept outside of the users' reach.

Theory of operation

A site registry may name a sink (``audit.sink``). Before a call starts, and after the commit that holds its `start`
row, the head of the session's chain is sent there, as an anchor (`audit.Anchor`). So it proves that row and all before
it, and never names a row that is not stored. Until the sink has taken it the call does not start: the runtime tries
again for `PATIENCE_S` and then ends the call as not run. A crash meanwhile is one between commit and start: the next
process asks about the call.

Both sinks are local datagram sockets, so a line is there as a whole or not at all. What the service behind it does with
a line that its socket took is its administrator's matter. journald notes which user sent a line, and no user can make
that up. syslog notes nothing that can be trusted.
"""

import os
import socket
from typing import Literal

from chatops.domain.canonical import canonical
from chatops.domain.errors import StoreError
from chatops.store.base import AuditRow

SinkKind = Literal["journald", "syslog"]
SOCKETS: dict[SinkKind, str] = {"journald": "/run/systemd/journal/socket", "syslog": "/dev/log"}
TIMEOUT_S = 2.0
"""Seconds that one attempt waits for a service that does not read: the call waits too."""
PATIENCE_S = 60.0
"""Seconds in which a call tries again before it ends as not run."""
_TAG = "chatops"
_PRIORITY = 10 * 8 + 5
"""Facility authpriv, severity notice, as RFC 3164 has them."""


class SinkError(StoreError):
    """The sink has not taken a line."""


def send(kind: SinkKind, head: AuditRow) -> None:
    """Send the head of a chain. Blocks for `TIMEOUT_S` at most. Raises SinkError."""
    anchor = canonical({"session": head.session_id, "number": head.number, "chain": head.chain})
    line = f"<{_PRIORITY}>{_TAG}[{os.getpid()}]: {anchor}"
    if kind == "journald":
        fields = {"MESSAGE": anchor, "PRIORITY": "5", "SYSLOG_IDENTIFIER": _TAG, "SYSLOG_FACILITY": "10"}
        line = "".join(f"{name}={value}\n" for name, value in fields.items())
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(TIMEOUT_S)
            sender.connect(SOCKETS[kind])
            sender.send(line.encode())
    except OSError as error:
        why = "it does not answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise SinkError(
            f"The site requires that {kind} takes the head of the decision log, and {SOCKETS[kind]} did not: {why}.",
            advice=f"Ask who runs this machine to start {kind}; `audit.sink` in the site registry names it.",
        ) from error
