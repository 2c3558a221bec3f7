"""The session store: sessions, messages, checkpoints, journal, decisions and grants."""
