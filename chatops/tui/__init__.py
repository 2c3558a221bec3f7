"""The terminal UI: screens translate keys, the projector turns events into blocks, widgets draw.

A start makes sixty classes of widgets. For each, Textual looks at every attribute of every base for reactive values and
for methods that compute one. This module replaces that method of Textual by one that looks at each base only once. The
package is imported before any of its widgets is made, so all of them profit.
"""

from functools import cache

from textual.dom import DOMNode
from textual.reactive import Reactive


@cache
def _own_reactives(cls: type) -> tuple[dict[str, object], frozenset[str]]:
    """Return the reactive values of a class without its bases, and the names of those that it computes."""
    methods = (name.removeprefix("_") for name in vars(cls) if name.startswith(("_compute_", "compute_")))
    return {name: value for name, value in vars(cls).items() if isinstance(value, Reactive)}, frozenset(
        name.removeprefix("compute_") for name in methods
    )


def _init_subclass(
    cls: type[DOMNode],
    inherit_css: bool = True,
    inherit_bindings: bool = True,
    inherit_component_classes: bool = True,
) -> None:
    """Set what Textual's `DOMNode.__init_subclass__` sets, with the reactive values of each base from a cache."""
    super(DOMNode, cls).__init_subclass__()
    own = [_own_reactives(base) for base in reversed(cls.__mro__)]
    cls._reactives = {name: value for reactives, _ in own for name, value in reactives.items()}  # type: ignore[misc]
    cls._computes = frozenset[str]().union(*(computes for _, computes in own))
    cls._inherit_css = inherit_css
    cls._inherit_bindings = inherit_bindings
    cls._inherit_component_classes = inherit_component_classes
    bases = cls._css_bases(cls)
    cls._css_type_name = cls.__name__
    cls._css_type_names = frozenset(base.__name__ for base in bases)
    cls._merged_bindings = cls._merge_bindings()


DOMNode.__init_subclass__ = classmethod(_init_subclass)  # type: ignore[assignment]
