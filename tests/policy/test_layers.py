"""One layer: of the rules that concern a call the strictest counts, whatever their order."""

from itertools import permutations

import pytest

from chatops.domain.decisions import ArgvPattern
from chatops.domain.errors import ConfigError
from chatops.domain.tools import CallFacts, Verdict
from chatops.policy.grant import judge_layer
from chatops.policy.registry import Registry
from chatops.policy.registry_checks import registry_warnings
from chatops.policy.resolve import find_role
from chatops.policy.verdicts import Layer, Rule
from tests.support.cases import for_each

RULES = (
    Rule(tool="shell_exec", verdict=Verdict.ALLOW),
    Rule(tool="shell_exec", verdict=Verdict.ASK, pattern=ArgvPattern(words=("git", "*"))),
    Rule(tool="shell_exec", verdict=Verdict.DENY, pattern=ArgvPattern(words=("git", "push", "*"))),
)


@for_each("rules", list(permutations(RULES)))
@for_each(
    ("argv", "verdict"),
    [
        (("git", "push", "origin"), Verdict.DENY),
        (("git", "status"), Verdict.ASK),
        (("ls",), Verdict.ALLOW),
    ],
)
def test_the_strictest_rule_counts(rules: tuple[Rule, ...], argv: tuple[str, ...], verdict: Verdict) -> None:
    facts = CallFacts(arguments="{}", command=" ".join(argv), argv=argv, cwd="/ws")
    layer = Layer(name="rules", rules=rules, default=Verdict.ALLOW)
    assert judge_layer(layer, "shell_exec", facts).verdict is verdict


def test_a_registry_without_roles_says_what_to_do() -> None:
    bare = Registry(source="mine", digest="d", models=())
    (warning,) = registry_warnings((None, bare), specs=())
    assert "names no roles" in warning.text
    assert "chatops connect URL" in warning.text
    with pytest.raises(ConfigError) as caught:
        find_role("assistant", registries=(None, bare))
    assert "names no roles" in caught.value.advice
