"""The transcript: events and stored messages become blocks, and blocks become lines of one widget."""
