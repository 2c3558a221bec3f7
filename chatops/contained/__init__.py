"""The copy of a workspace in which a contained turn works, its list of changes, and their application."""
