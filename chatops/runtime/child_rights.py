"""Rights of a role that is delegated to, compared with those of the turn that delegates."""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

from chatops.config.folder_identity import folder_identity
from chatops.domain.canonical import canonical
from chatops.domain.decisions import RuleScope
from chatops.domain.errors import ConfigError
from chatops.domain.ids import CallId, child_session
from chatops.domain.tools import CallFacts, DelegationFacts, ToolCall, Verdict
from chatops.policy.delegation import ChildBinding, added_rights, binding, grant_digest
from chatops.policy.grant import Grant
from chatops.policy.remembered import why_not_here
from chatops.policy.sandbox import SandboxChange
from chatops.runtime.services import Services
from chatops.runtime.settings import SessionSettings
from chatops.toolkit.base import Delegated
from chatops.toolkit.confine import with_problem
from chatops.toolkit.threads import in_thread

_READING_TOOL = "file_read"
"""The tool whose rights the files of a task need."""


class ChildGrant(NamedTuple):
    """The grant of a child."""

    grant: Grant
    adds: tuple[str, ...]
    """Rights that the caller lacks, in words."""

    @property
    def digest(self) -> str:
        """Digest that an approval of the call is bound to."""
        return grant_digest(self.grant, self.adds)


class ChildRights:
    """The rights of the children of one call."""

    def __init__(
        self, services: Services, call_id: CallId, *, caller: Grant, sandbox: tuple[SandboxChange, ...]
    ) -> None:
        """`caller` is the grant of the turn that delegates, `sandbox` what the user has changed for its session."""
        self._services = services
        self._call_id = call_id
        self._caller = caller
        self._sandbox = sandbox

    @property
    def binding(self) -> ChildBinding:
        """The layers of the caller that bind each child."""
        return ChildBinding(call_id=self._call_id, caller=self._caller.role, layers=binding(self._caller))

    async def compare(self, facts: CallFacts, given: Delegated) -> CallFacts:
        """Return `facts` with the rights that the child's role adds, and with what is wrong with the arguments."""
        try:
            child = await self.of_role(given.role)
        except ConfigError as error:
            return with_problem(facts, "role", f"cannot work on it: {error.full}", given=given.role)
        for number, path in enumerate(given.files):
            facts = await self._add_file(facts, f"files[{number}]", path)
        model = child.grant.models[0]
        found = DelegationFacts(role=given.role, model=model.label or model.name, adds=child.adds, grant=child.digest)
        needs_user = f"role {given.role} has rights that this turn lacks" if child.adds else ""
        return replace(facts, delegation=found, needs_user=needs_user)

    async def of_role(self, role: str) -> ChildGrant:
        """Return the rights of a child in this role. Raises ConfigError for an unknown one."""
        settings = SessionSettings(role=role, inherited=self._sandbox, child=self.binding)
        child = settings.grant(self._services.rights)
        rows = await self._services.worker(partial(self._services.store.rules, uid=self._services.by.uid))
        folder = await in_thread(folder_identity, self._services.workspace)
        rules = [row.rule for row in rows if row.rule.scope is not RuleScope.SESSION]
        rules = [rule for rule in rules if not why_not_here(rule, folder=folder, scopes=child.rule_scopes)]
        return ChildGrant(child, added_rights(child, self._caller, remembered=rules).words)

    async def _add_file(self, facts: CallFacts, field: str, path: str) -> CallFacts:
        """Return `facts` with a file of the task, which the turn must be allowed to read without a question."""
        tool = self._services.tools.get(_READING_TOOL) if self._caller.tool(_READING_TOOL) is not None else None
        if tool is None:
            return with_problem(facts, field, f"needs {_READING_TOOL}, which this role does not have", given=path)
        if '"' in path or "\n" in path:
            return with_problem(facts, field, "has a name that cannot be attached", given=path)
        call = ToolCall(id=self._call_id, name=_READING_TOOL, arguments=canonical({"path": path}))
        session_id = child_session(self._call_id)
        context = self._services.contexts(session_id, call.id, attempt=1, tool=tool, output=lambda text: None)
        read = await tool.inspect(call, context)
        if read.problems:
            return with_problem(facts, field, read.problems[0].message, given=path)
        judged = self._caller.judge(_READING_TOOL, read)
        if judged.verdict is not Verdict.ALLOW:
            return with_problem(
                facts, field, f"cannot be given: {_READING_TOOL} of it is not allowed ({judged.why})", given=path
            )
        return replace(facts, paths=(*facts.paths, *read.paths))
