"""The desk: a page for browser and phone that lists what waits in all sessions of this user, and decides it."""
