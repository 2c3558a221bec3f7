"""Our frozen dataclasses behave as those of the standard library do, and all of them are made by the quick way."""

import pickle
import re
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pytest

import chatops
from chatops.domain.frozen_dataclass import frozen_dataclass
from tests.support.cases import for_each


@frozen_dataclass
class Quick:
    number: int
    text: str = "a"
    hidden: str = field(default="secret", repr=False)
    note: list[int] = field(default_factory=list, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    number: int
    text: str = "a"
    hidden: str = field(default="secret", repr=False)
    note: list[int] = field(default_factory=list, compare=False)


CASES: list[dict[str, Any]] = [
    {"number": 1},
    {"number": 1, "note": [2]},
    {"number": 1, "hidden": "b"},
    {"number": 2, "text": "1"},
]


@for_each("given", CASES)
def test_a_value_compares_hashes_and_reads_as_one_of_the_standard_library(given: dict[str, Any]) -> None:
    quick, slow = Quick(**given), Slow(**given)

    for others in CASES:
        assert (quick == Quick(**others)) == (slow == Slow(**others))
        assert (hash(quick) == hash(Quick(**others))) == (hash(slow) == hash(Slow(**others)))
    assert quick.__eq__(slow) is NotImplemented
    assert repr(quick) == repr(slow).replace("Slow", "Quick")
    assert [each.name for each in fields(quick)] == [each.name for each in fields(slow)]
    assert replace(quick, number=9) == Quick(**given | {"number": 9})
    assert pickle.loads(pickle.dumps(quick)) == quick


def test_a_value_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        Quick(number=1).number = 2  # type: ignore[misc]


def test_a_class_keeps_methods_of_its_own() -> None:
    @frozen_dataclass(kw_only=False)
    class Own:
        number: int

        def __eq__(self, other: object) -> bool:
            return False

        def __repr__(self) -> str:
            return "own"

    one = Own(1)
    assert one != one
    assert repr(one) == "own"
    assert hash(one) == hash(Own(1))


def test_no_frozen_dataclass_is_made_the_slow_way() -> None:
    slow = re.compile(r"@(?:dataclasses\.)?dataclass\([^)]*frozen=True, slots=True")
    folder = Path(chatops.__file__).parent

    assert [str(path) for path in folder.rglob("*.py") if slow.search(path.read_text())] == []
