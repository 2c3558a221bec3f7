"""Counts the steps of a call, so that a test can see how they grow without a clock."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from chatops.dialects.reading import UnreadableValueError


def steps(read: Callable[[str], object], text: str) -> int:
    """Count the Python lines that run, and the C functions that are called, while `read` reads `text`."""
    count = 0

    def line(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return line

    def call(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "c_call"

    before, profiled = sys.gettrace(), sys.getprofile()
    sys.settrace(line)
    sys.setprofile(call)
    try:
        read(text)
    except UnreadableValueError:
        pass
    finally:
        sys.settrace(before)
        sys.setprofile(profiled)
    return count
