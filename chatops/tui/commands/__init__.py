"""Slash commands: their table, handlers and completion."""
