"""Go through many small cases in one test: a test item costs some milliseconds, which is more than most cases take."""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

Test = Callable[..., None]


def for_each(
    names: str | Sequence[str], cases: Iterable[Any], ids: Callable[[Any], str] | Iterable[str] | None = None
) -> Callable[[Test], Test]:
    """Run a test for each case, as ``pytest.mark.parametrize`` does, but as one test.

    All cases run. If some fail, the first failure is raised, with a note that names the failed ones. For tests without
    fixtures, since the cases would share them.
    """
    parameters = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    cases = list(cases)
    rows = [_row(case, len(parameters)) for case in cases]
    labels = list(map(repr, cases))
    if callable(ids):
        labels = [", ".join(map(ids, row)) for row in rows]
    elif ids is not None:
        labels = list(ids)
    assert rows, "a test without cases proves nothing"

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run(*arguments: Any, **others: Any) -> None:
            failures: dict[str, BaseException] = {}
            for label, row in zip(labels, rows, strict=True):
                try:
                    test(*arguments, **others, **dict(zip(parameters, row, strict=True)))
                except (Exception, pytest.fail.Exception) as failure:
                    failures[label] = failure
            for first in failures.values():
                first.add_note(f"{len(failures)} of {len(rows)} cases failed: {'; '.join(failures)}")
                raise first

        signature = inspect.signature(test)
        left = [parameter for name, parameter in signature.parameters.items() if name not in parameters]
        run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return run

    return decorate


def _row(case: Any, width: int) -> tuple[Any, ...]:
    values = tuple(case) if width > 1 else (case,)
    assert len(values) == width, f"{case!r} has not {width} values"
    return values
