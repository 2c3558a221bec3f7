"""A workflow run as a second pure state machine. It starts turns and processes how they ended."""
