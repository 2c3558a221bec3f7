"""Git repositories read without running git: whether reading one is harmless, its settings, what it ignores."""
