"""The blocks of a transcript as frozen values, and how each is drawn as lines."""
