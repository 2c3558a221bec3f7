"""The user of this process, by its uid and groups.

``$USER`` and ``$LOGNAME`` are not used, because anyone can set them.
"""

import grp
import os
import pwd

from chatops.policy.resolve import Person


def current_person() -> Person:
    """Return the user of the real uid; the login is ``#<uid>`` without a password database entry."""
    uid = os.getuid()
    try:
        login = pwd.getpwuid(uid).pw_name
    except KeyError:
        login = f"#{uid}"
    return Person(uid=uid, login=login, groups=_groups())


def _groups() -> frozenset[str]:
    names = set()
    for gid in {os.getgid(), *os.getgroups()}:
        try:
            names.add(grp.getgrgid(gid).gr_name)
        except KeyError:
            continue
    return frozenset(names)
