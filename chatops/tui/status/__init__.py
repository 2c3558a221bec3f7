"""The status line, and the lines above the message field."""
