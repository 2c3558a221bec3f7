"""Remembered rules: where each may answer, and why one does not.

Theory of operation

A user who approves a call may let the same pattern be approved from then on, within a scope: this session, this folder,
or this role everywhere. A rule answers an *ask* and nothing else (`grant.py`), so it never lifts a *deny* or a ceiling.

A rule is checked twice by the same functions: when it is made (`why_not_made`) and each time it could answer
(`why_not_answered`). What was true when it was made may have changed since: the folder was replaced, the sandbox no
longer works, the site switched its scope off. Then it does not answer, and the user is asked and told why. It is not
deleted: it answers again once its conditions hold again.

The widest scope (`widest_scope`) follows from what the call could run:

- without a program: any scope
- a program without a sandbox: this session
- a program whose words are unknown, that names places outside of its folder, or whose inspection found a doubt
  (`CallFacts.caution`, `reveals`): this session
- a program that may run code of the folder, such as a test runner: this folder
- a program known to run no code of the folder (`harmless.runs_no_workspace_code`): this role everywhere

A glob of files answers for writing none that a program runs or obeys later, and none with a caution.

A rule for a command that can use credentials is bound to these as they stand, and without them it does not answer.

A call with repairs, and one that only a decision on itself permits (`needs_user`), is answered by no rule.

Tried and rejected: deleting a rule whose conditions fail. A sandbox that fails once, or a registry that is being
edited, would cost the user all rules.
"""

from collections.abc import Collection

from chatops.domain.canonical import digest
from chatops.domain.decisions import AnyArguments, ArgumentPattern, ArgvPattern, PathPattern, RememberedRule, RuleScope
from chatops.domain.names import runs_later
from chatops.domain.tools import CallFacts, Capabilities, ToolCall
from chatops.policy.patterns import STAR, is_literal, matches, stays_inside
from chatops.shell.harmless import reader_word_count, runs_its_arguments, runs_no_workspace_code
from chatops.shell.simple_command import why_not_simple

SCOPES = tuple(RuleScope)
"""All scopes, the narrowest first."""
SCOPE_NAMES = {RuleScope.SESSION: "this session", RuleScope.FOLDER: "this folder", RuleScope.ROLE: "everywhere"}


def scope_words(scope: RuleScope, role: str) -> str:
    """Return where a rule of this scope answers: ``this session, as coder``."""
    return f"{SCOPE_NAMES[scope]}, as {role}"


def rule_from(
    call: ToolCall, facts: CallFacts, *, role: str, pattern: ArgumentPattern, scope: RuleScope, uid: int | None = None
) -> RememberedRule:
    """Return the rule that the decision on `call`, as inspected, would make."""
    return RememberedRule(
        role=role,
        tool=call.name,
        pattern=pattern,
        source_call=call.id,
        scope=scope,
        folder=facts.folder if scope is RuleScope.FOLDER else "",
        definition=_bound_to(facts),
        uid=uid,
    )


def _bound_to(facts: CallFacts) -> str:
    """Return what a rule for this call is bound to: the definition of the tool, and the credentials that it can use."""
    return digest(facts.definition, *facts.credentials) if facts.credentials else facts.definition


def widest_scope(known: Capabilities, facts: CallFacts) -> tuple[RuleScope, str]:
    """Return the widest scope that a rule for this call may have, and why no wider one; empty if it is the widest."""
    if facts.caution or facts.reveals:
        return RuleScope.SESSION, (facts.caution or facts.reveals).removesuffix(".")
    if not (known.runs_anything or facts.command):
        return RuleScope.ROLE, ""
    if not facts.sandboxed:
        return RuleScope.SESSION, "the program runs without a sandbox"
    if not facts.argv:
        return RuleScope.SESSION, _why_no_words(facts.command)
    if not stays_inside(facts):
        return RuleScope.SESSION, "it names files outside of its folder, or places of secrets"
    if not runs_no_workspace_code(facts.argv, cwd=facts.cwd):
        return RuleScope.FOLDER, f"{facts.argv[0]} may run code of the folder"
    return RuleScope.ROLE, ""


def _why_no_words(command: str) -> str:
    if not command:
        return "it is not known what the tool runs"
    return f"such a rule is for one plain command, and this one {why_not_simple(command) or 'names no program'}"


def why_not_answered(
    rule: RememberedRule, known: Capabilities, facts: CallFacts, *, scopes: Collection[RuleScope]
) -> str:
    """Return why `rule` does not answer a call that its pattern matches; empty if it does."""
    if facts.repairs:
        return "the call had to be repaired"
    if facts.needs_user:
        return facts.needs_user
    if isinstance(rule.pattern, AnyArguments) and (known.runs_anything or facts.command):
        return "it would let the model run anything"
    if reason_here := why_not_here(rule, folder=facts.folder, scopes=scopes):
        return reason_here
    lasting = rule.scope is not RuleScope.SESSION  # Beyond the session, so the tool may have changed unseen.
    if (rule.definition or lasting or facts.credentials) and rule.definition != _bound_to(facts):
        return "the tool has changed since, or the credentials that it can use"
    if lasting and not facts.definition:
        return "the tool is not known"
    if isinstance(rule.pattern, PathPattern) and (reason := why_not_written(rule.pattern, known, facts)):
        return reason
    widest, reason = widest_scope(known, facts)
    if SCOPES.index(rule.scope) > SCOPES.index(widest):
        return reason
    return ""


def why_not_written(pattern: PathPattern, known: Capabilities, facts: CallFacts) -> str:
    """Return why a glob of several files does not answer for writing this one; empty if it does."""
    if not known.writes or is_literal(pattern.glob):
        return ""
    if facts.caution:
        return facts.caution.removesuffix(".")
    for path in facts.paths:
        inside = facts.relative(path)
        if programs := runs_later(inside):
            return f"{inside} is run or obeyed later, by {', '.join(programs)}"
    return ""


def why_not_here(rule: RememberedRule, *, folder: str, scopes: Collection[RuleScope]) -> str:
    """Return why `rule` answers no call in a folder of this identity; empty if it may."""
    if rule.scope not in scopes:
        return f"the registry switches off rules for {SCOPE_NAMES[rule.scope]}"
    if rule.scope is RuleScope.FOLDER and (not rule.folder or rule.folder != folder):
        return "it was made in another folder, or the folder was replaced since"
    return ""


def why_not_made(rule: RememberedRule, known: Capabilities, facts: CallFacts, *, scopes: Collection[RuleScope]) -> str:
    """Return why `rule` cannot be made from the decision on this call; empty if it can."""
    if not matches(rule.pattern, facts):
        return "it does not match the call"
    if fault := pattern_fault(rule.pattern):
        return fault
    if rule.scope is RuleScope.FOLDER and not facts.folder:
        return "this folder could not be told from one that replaces it"
    return why_not_answered(rule, known, facts, scopes=scopes)


def pattern_fault(pattern: ArgumentPattern) -> str:
    """Return why this pattern cannot be offered as a rule; empty if it can."""
    if not isinstance(pattern, ArgvPattern) or pattern.words[-1:] != (STAR,):
        return ""
    words = pattern.words[:-1]
    if not words:
        return "a rule has to name a program"
    if runs_its_arguments(words):
        return f"the arguments of {words[0]} can run other programs"
    if len(words) == 1 and not reader_word_count(words) and words != ("git",):
        return f"it is not known what {words[0]} does with its arguments; name its first argument too"
    return ""
