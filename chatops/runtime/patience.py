"""Notices while a model does not answer, and their final text once it does."""

from chatops.models.base import Retrying, Waiting
from chatops.models.retry import in_words


def told(event: Retrying | Waiting) -> str:
    """Return the notice to show while no data comes."""
    if isinstance(event, Retrying):
        return f"{event.reason} Trying again in {in_words(event.left_s)} ({event.attempt} of {event.of}); Esc stops it."
    if event.limit_s is None:
        return f"Waiting for {in_words(event.seconds)} until other requests to this model are over; Esc stops it."
    but = ", but the server is alive" if event.alive else ""
    end = in_words(event.limit_s)
    return f"No data for {in_words(event.seconds)}{but}. It is given up after {end}; Esc stops it now."


def told_after(event: Retrying | Waiting, *, stopped: bool = False, failed: bool = False) -> str:
    """Return the final text of the same notice, once waiting is over.

    `stopped`: no data came and the user stopped waiting. `failed`: the call ended with an error, which names the reason
    itself.
    """
    if isinstance(event, Retrying) and failed:
        return f"Tried again ({event.attempt} of {event.of})."
    if isinstance(event, Retrying):
        tried = "It was not tried again." if stopped else f"Tried again ({event.attempt} of {event.of})."
        return f"{event.reason} {tried}"
    if event.limit_s is None:
        return f"Waited for {in_words(event.seconds)} until other requests to this model were over."
    return f"There was no data for {in_words(event.seconds)}."
