"""Number of examples per property."""

from hypothesis import settings


def examples(usual: int, *, among: int = 1) -> int:
    """Return the number of examples: `usual`, or as many as the fuzz profile says.

    `among`: how many parameters the property has; they share the examples of the fuzz profile.
    """
    if settings.get_current_profile_name() != "fuzz":
        return usual
    return max(usual, settings().max_examples // among)
