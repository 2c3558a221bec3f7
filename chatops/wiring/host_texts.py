"""The host's texts about rights: tools, policy, permissions, and the doctor."""

import asyncio

from chatops.domain.decisions import RememberedGrant
from chatops.domain.errors import ConfigError
from chatops.engine.view import read_workspace, workspace_was_read
from chatops.policy.patterns import show_rule
from chatops.runtime.view import SessionView
from chatops.tui.host import TextTopic
from chatops.wiring.app import App
from chatops.wiring.explain import NO_SESSION, explain_call


class HostTexts:
    """The host's part for what may be done in a session."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def text(self, topic: TextTopic, *, session: SessionView, argument: str = "") -> str:
        """Return the text of a topic."""
        match topic:
            case "tools":
                return self._tools(session)
            case "policy":
                return await self._explained(session, argument) if argument else _policy(session)
            case "permissions":
                return await self._permissions(session)
            case "doctor":
                from chatops.wiring.doctor import doctor_text

                return await asyncio.to_thread(doctor_text, self._app)

    async def revoke(self, session: SessionView, *, number: int) -> str:
        """Withdraw a remembered permission by its number, and return the notice."""
        grants = await self._grants(session)
        if not 1 <= number <= len(grants):
            raise ConfigError(f"There is no permission number {number}.", advice="/permissions lists them.")
        gone = grants[number - 1]
        await session.owned("Nothing was withdrawn").withdraw(gone)
        return f"Withdrawn: {show_rule(gone.tool, gone.pattern)} in role {gone.role}."

    def _tools(self, session: SessionView) -> str:
        grant = session.grant()
        lines = [f"Tools of role {grant.role} at access level {grant.level.word}:", ""]
        lines += [f"  {spec.name:<14} {spec.description}" for spec in grant.tools] or ["  none"]
        hidden = [spec.name for spec in self._app.catalog.specs if grant.tool(spec.name) is None]
        lines += ["", f"Not on offer here: {', '.join(hidden) or 'none'}"]
        lines += [f"{tool}: {reason}" for tool, reason in self._app.catalog.absent.items()]
        return "\n".join(lines)

    async def _explained(self, session: SessionView, argument: str) -> str:
        """Return the verdict on ``TOOL [JSON]`` in this session, with its grants and what it has read."""
        tool, _, arguments = argument.partition(" ")
        found = await explain_call(
            self._app,
            session.grant(),
            tool,
            arguments.strip() or None,
            session=session.session_id or NO_SESSION,
            remembered=await self._grants(session),
            workspace_read=_workspace_was_read(session),
        )
        return "\n".join([*found.lines, "", *found.remarks]).rstrip()

    async def _grants(self, session: SessionView) -> tuple[RememberedGrant, ...]:
        if not session.session_id:
            return ()
        return await asyncio.to_thread(self._app.store.grants, session.session_id)

    async def _permissions(self, session: SessionView) -> str:
        grants = await self._grants(session)
        role = session.snapshot().role
        lines = ["Remembered in this session (revoke with /permissions revoke N):", ""]
        for number, grant in enumerate(grants, start=1):
            note = "" if grant.role == role else "  (suspended: another role is in force)"
            lines.append(f"  {number}. {show_rule(grant.tool, grant.pattern)}  role {grant.role}{note}")
        lines += [] if grants else ["  none"]
        lines += ["", "Allowed by configuration and flags:", ""]
        lines += [f"  {show_rule(a.tool, a.pattern)}  ({a.source})" for a in session.grant().answers] or ["  none"]
        return "\n".join(lines)


def _workspace_was_read(session: SessionView) -> bool:
    """Return True as the next call would find it, including in a reopened session without a turn."""
    if session.state is not None:
        return workspace_was_read(session.state)
    return read_workspace(session.snapshot().messages)


def _policy(session: SessionView) -> str:
    grant = session.grant()
    lines = [f"Role {grant.role}, access level {grant.level.word}. The strictest layer counts.", ""]
    for layer in grant.layers:
        lines.append(f"{layer.name} (otherwise {layer.default.value}):")
        lines += [f"  {rule.verdict.value:<6} {show_rule(rule.tool, rule.pattern)}" for rule in layer.rules]
    return "\n".join(lines)
