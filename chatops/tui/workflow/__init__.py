"""Display of a workflow run: its state as values, times, lines and texts."""
