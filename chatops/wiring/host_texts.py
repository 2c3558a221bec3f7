"""The host's texts about rights: tools, policy, permissions, and the doctor."""

import asyncio
from collections.abc import Sequence

from chatops.config.folder_identity import folder_identity
from chatops.config.memory import Memories
from chatops.config.skills import Skills
from chatops.config.trust import TrustQuestion
from chatops.config.workspace_files import ItemKind
from chatops.domain.decisions import RememberedRule
from chatops.domain.errors import ConfigError
from chatops.domain.files import FileRef
from chatops.domain.sandbox import NARROWEST
from chatops.engine.view import read_workspace, workspace_was_read
from chatops.policy.grant import Grant
from chatops.policy.patterns import show_rule
from chatops.policy.remembered import scope_words, why_not_here
from chatops.policy.sandbox import reasons
from chatops.runtime.view import SessionView
from chatops.store.base import RuleRow
from chatops.tui.host import RuleItem, TextTopic
from chatops.wiring.app import App
from chatops.wiring.explain import NO_SESSION, explain_call, tools_text
from chatops.wiring.servers import login_text, servers_text
from chatops.wiring.words import describe_rule


class HostTexts:
    """The host's part for what may be done in a session."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def text(self, topic: TextTopic, *, session: SessionView, argument: str = "") -> str:
        match topic:
            case "tools":
                return tools_text(
                    session.grant(),
                    specs=self._app.catalog.specs,
                    unavailable=self._app.catalog.unavailable,
                    remembered=tuple(row.rule for row in await self._rules(session)),
                    workspace_read=_workspace_was_read(session),
                )
            case "policy":
                return await self._explained(session, argument) if argument else _policy(session)
            case "sandbox":
                return await asyncio.to_thread(self._limits, session)
            case "permissions":
                return await self._permissions(session)
            case "doctor":
                from chatops.wiring.doctor import doctor_text

                return await asyncio.to_thread(doctor_text, self._app)
            case "mcp":
                return servers_text(self._app.servers, reconnect=argument)
            case "mcp login":
                return await login_text(self._app.servers, argument)

    async def open_file(self, file: FileRef) -> str:
        from chatops.wiring.opener import open_file  # seldom needed

        return await asyncio.to_thread(open_file, self._app.files, file)

    async def trust_question(self) -> TrustQuestion:
        starts = self._app.server_trust.question
        tools = await asyncio.to_thread(self._app.own_tools_trust.reread)
        folder = await asyncio.to_thread(self._app.trust.reread)
        found = next((one for one in (starts, tools, folder) if one.is_open), folder)
        return starts if starts.is_answerable and not found.is_answerable else found

    def starts_question(self) -> TrustQuestion | None:
        question = self._app.server_trust.question
        return question if question.is_open else None

    async def answer_trust(self, shown: TrustQuestion, *, trusted: bool) -> tuple[str, ...]:
        tools = self._app.own_tools_trust
        trust = tools if shown.path == tools.question.path else self._app.trust
        if shown.kind is ItemKind.SERVER_START:
            trust = self._app.server_trust
        changed = await asyncio.to_thread(trust.trust if trusted else trust.decline, shown)
        for one in shown.listed if trusted and trust is self._app.server_trust else ():
            self._app.servers.reconnect(one.item.path)
        self._app.notify_rights_changed()
        return changed

    async def revoke_trust(self) -> bool:
        found = await asyncio.to_thread(self._app.trust.revoke)
        found = await asyncio.to_thread(self._app.server_trust.revoke) or found
        self._app.notify_rights_changed()
        return found

    @property
    def memories(self) -> Memories:
        return self._app.memories

    def skills(self) -> Skills:
        return self._app.trusted.skills(fresh=True)

    def skills_folder(self) -> str:
        return str(self._app.paths.skills)

    async def rules(self, session: SessionView) -> Sequence[RuleItem]:
        described = [(row.rule.id, *describe_rule(row)) for row in await self._rules(session)]
        return [RuleItem(id=id, rule=rule, about=f"{where}\n{made}") for id, rule, where, made in described]

    async def revoke(self, session: SessionView, *, rule: str) -> str:
        found = next((row.rule for row in await self._rules(session) if row.rule.id == rule), None)
        if found is None or not await asyncio.to_thread(self._app.store.revoke_rule, rule):
            raise ConfigError(f"There is no rule {rule}.", advice="/permissions lists them.")
        return f"Revoked rule {rule}: {show_rule(found.tool, found.pattern)}: {scope_words(found.scope, found.role)}."

    def _limits(self, session: SessionView) -> str:
        """Return level, what commands see, write and reach, and the layer of each."""
        from chatops.sandbox.confinement import confinement  # commands may never run

        settings = session.settings
        layers = self._app.rights.sandbox_layers(settings)
        spec = session.grant().sandbox or NARROWEST
        found = confinement(spec, workspace=self._app.workspace, protected=self._app.limits.protected_paths())
        protected = ".chatops and .git" if spec.git == "protect" else ".chatops"
        lines = [
            f"Level {found.level.word}: {found.description}",
            *([found.refusal] if found.refusal else []),
            "",
            f"Writable   the workspace, but not {protected}",
            "",
            "Beyond the default:",
        ]
        lines += [f"  {key:<8} {value}   ({source})" for key, value, source in reasons(layers)] or ["  nothing"]
        lines += ["", "Changed for this session (/sandbox reset takes it back):"]
        lines += [f"  {change}" for change in settings.sandbox] or ["  nothing"]
        if layers.site is not None:
            lines += ["", "The site registry limits all of it."]
        lines += ["", "To change it: /sandbox git commit, /sandbox hosts +NAME, /sandbox reset."]
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
            remembered=tuple(row.rule for row in await self._rules(session)),
            workspace_read=_workspace_was_read(session),
        )
        return "\n".join([*found.lines, "", *found.notices]).rstrip()

    async def _rules(self, session: SessionView) -> tuple[RuleRow, ...]:
        return await asyncio.to_thread(self._app.rules, session.session_id or None)

    async def _permissions(self, session: SessionView) -> str:
        grant, rows = session.grant(), await self._rules(session)
        folder = await asyncio.to_thread(folder_identity, session.workspace)
        lines = ["Remembered rules (/permissions revoke takes one back):", ""]
        for row in rows:
            pattern, *more = describe_rule(row)
            if reason := _silent(row.rule, grant, folder=folder):
                more += [f"does not answer here: {reason}"]
            lines += [f"  {row.rule.id:>3}  {pattern}", *(f"       {text}" for text in more), ""]
        lines += [] if rows else ["  none", ""]
        lines += ["Allowed by configuration and flags:", ""]
        lines += [f"  {show_rule(a.tool, a.pattern)}  ({a.source})" for a in grant.answers] or ["  none"]
        return "\n".join(lines)


def _silent(rule: RememberedRule, grant: Grant, *, folder: str) -> str:
    """Return why a rule answers nothing in this role and folder; empty if it may."""
    if rule.role != grant.role:
        return f"role {grant.role} is in force"
    return why_not_here(rule, folder=folder, scopes=grant.rule_scopes)


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
