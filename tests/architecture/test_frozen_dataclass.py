"""Our frozen dataclasses behave as those of the standard library do, and all of them are made by the quick way."""

import inspect
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


@dataclass(frozen=True, kw_only=True)
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


@for_each("name", ["number", "note", "other"])
def test_a_value_does_not_change_and_says_so_as_one_of_the_standard_library(name: str) -> None:
    for change, *value in ((delattr,), (setattr, 2)):
        with pytest.raises((FrozenInstanceError, TypeError)) as quick:
            change(Quick(number=1), name, *value)
        with pytest.raises(quick.type, match=re.escape(str(quick.value))):
            change(Slow(number=1), name, *value)


def test_dataclasses_of_others_are_made_by_the_standard_library_itself() -> None:
    @dataclass(frozen=True)
    class Other:
        number: int

    assert Other.__setattr__.__code__.co_filename == "<string>"


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


def test_a_class_and_one_derived_from_it_take_the_values_that_those_of_the_standard_library_take() -> None:
    @frozen_dataclass
    class Derived(Quick):
        more: int = 3

        def __post_init__(self) -> None:
            if self.more < 0:
                raise ValueError("more is negative")

    @dataclass(frozen=True, kw_only=True)
    class SlowDerived(Slow):
        more: int = 3

    assert inspect.signature(Derived) == inspect.signature(SlowDerived)
    assert inspect.signature(Quick) == inspect.signature(Slow)
    assert (Derived(number=1).more, Derived(number=1, more=4).more, Quick(number=1).text) == (3, 4, "a")
    with pytest.raises(ValueError, match="negative"):
        Derived(number=1, more=-1)
    with pytest.raises(TypeError, match=r"^.*Derived\.__init__\(\) got an unexpected keyword argument 'size'$"):
        Derived(number=1, size=1)  # type: ignore[call-arg]


def test_no_frozen_dataclass_is_made_the_slow_way() -> None:
    slow = re.compile(r"@(?:dataclasses\.)?dataclass\([^)]*frozen=True")
    folder = Path(chatops.__file__).parent

    assert [str(path) for path in folder.rglob("*.py") if slow.search(path.read_text())] == []
