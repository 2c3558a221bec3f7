"""Writers of calls, by format."""
