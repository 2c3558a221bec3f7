"""Servers that others wrote, for the tier `servers`: `python -m tests.servers` installs them and runs the tests."""
