"""The message field, its text fields and its completions."""
