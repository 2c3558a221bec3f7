"""Screens of the terminal UI. They turn keys into calls of the session and show what it publishes."""
