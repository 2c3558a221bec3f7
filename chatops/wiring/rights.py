"""Rights of roles, from registries, user and flags, resolved again for every turn."""

import grp
import os
import platform
import pwd
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path

from chatops.config.prompt_files import Memories, Persona, Personas
from chatops.domain.decisions import NO_UID, UNATTENDED, Principal
from chatops.domain.errors import ConfigError
from chatops.domain.events import AskReason, PendingCall
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sandbox import NARROWEST, SandboxSpec
from chatops.domain.tools import CONTAINED_APPLY, AccessLevel, ToolSpec, Verdict
from chatops.engine.state import Containment
from chatops.engine.view import judge_apply
from chatops.engine.workflow.texts import step_prompt
from chatops.policy.approvers import approvers_phrase, why_cannot_approve
from chatops.policy.budget import NO_BUDGET, Budget, strictest
from chatops.policy.grant import Grant
from chatops.policy.prompt import PromptLayer, compose, layers_for, memory_notes, project_notes, skill_notes
from chatops.policy.registry import SURFACES, Registries, RoleSpec, UserSpec
from chatops.policy.registry_checks import (
    withheld_tools,
)
from chatops.policy.resolve import (
    DEFAULT_MAX_ROUNDS,
    User,
    access_level,
    find_role,
    resolve_grant,
    revoked_layer,
    role_names,
    sandbox_layers,
)
from chatops.policy.sandbox import SandboxLayers, beyond, describe_extra, limited_by
from chatops.policy.servers import server_of
from chatops.policy.verdicts import SKILL_TOOL, Judgement, Layer, Rule
from chatops.policy.workflow import SHELL_TOOL, step_layers
from chatops.runtime.settings import SessionSettings, StepRights
from chatops.store.audit import SinkKind
from chatops.store.base import Decider
from chatops.wiring.configuration import Configuration
from chatops.wiring.registry_models import DEFAULT_MODEL_KEY, RegistryModels
from chatops.wiring.stored import Settings
from chatops.wiring.toolbox import Toolbox

BASE_PROMPT = (
    "You are the assistant in chatops, a chat app in a terminal. Answer in Markdown that reads well in a narrow "
    "window: short paragraphs, few headings, code in fences. Say plainly what you do not know."
)
SUMMARY_PROMPT = (
    "You run unattended; no one is watching. When the task is done, report the result in a few plain sentences: "
    "what was found or changed, what failed, what is still open. No greeting and no closing words."
)

DEFAULT_PERSONA = "default"


@frozen_dataclass
class Limits:
    """Choices of the command line. They narrow rights or answer an ask for this run; only `sandbox` widens.

    The sandbox's ceiling limits that too.
    """

    max_rounds: int | None = None
    budget: Budget = NO_BUDGET
    approvals: tuple[str, ...] = ()
    summary: bool = False
    sandbox: SandboxSpec = NARROWEST
    """Further folders that commands may see and write (``--add-dir``)."""


class RegistryRights(RegistryModels):
    """Implementation of `runtime.settings.Rights` over the current registries."""

    def __init__(
        self,
        configuration: Callable[[], Configuration],
        *,
        user: User,
        workspace: Path,
        limits: Limits,
        memories: Memories,
        tools: Callable[[], Toolbox],
        settings: Callable[[], Settings],
        notices: Callable[[Grant], tuple[str, ...]],
    ) -> None:
        """Resolve nothing yet. `tools` and `settings` are costly to create, so they are asked for at the first use."""
        super().__init__(configuration, settings)
        self._user = user
        self._workspace = workspace
        self._limits = limits
        self._memories = memories
        self._tools = tools
        self._notices = notices
        self._resolved: tuple[partial[Grant], Grant] | None = None
        """The arguments of the last resolved grant, and that grant without its prompt. Resolving takes 0.7 ms."""
        self._returned: Grant | None = None
        """The last returned grant. An equal one is returned as this object, so that its 9 kB are not encoded again."""

    @property
    def level(self) -> AccessLevel:
        """The user's access level here."""
        now = self._configuration()
        user, cap = self._user, now.access_cap
        return min(access_level(registries=registries, user=user, access_cap=cap) for registries in now.both)

    def check_surface(self, via: str) -> None:
        """Raise ConfigError if the site does not let users decide on calls there. `via` is as in `Principal`."""
        surface = SURFACES.get(via, via or "unknown")
        for site in (registries[0] for registries in self._configuration().both):
            if via != UNATTENDED and site is not None and surface not in site.surfaces:
                allowed = ", ".join(site.surfaces) or "nowhere"
                raise ConfigError(
                    f"Nothing was decided: the site does not let users decide on this surface ({surface}).",
                    advice=f"Allowed by {site.source}: {allowed}.",
                )

    def sinks(self) -> tuple[SinkKind, ...]:
        """Return the services that have to take the head of a decision log before a call starts."""
        sites = (registries[0] for registries in self._configuration().both)
        return tuple(dict.fromkeys(site.sink for site in sites if site is not None and site.sink is not None))

    def roles(self) -> tuple[str, ...]:
        """Return the names of all roles, the user's registry first."""
        return role_names(self._configuration().registries)

    def role_colours(self) -> list[tuple[str, str]]:
        """Return the names of all roles with their colours; the user's registry comes first."""
        known = self._configuration().known
        return [
            (name, next((role.color for registry in known if (role := registry.role(name)) and role.color), ""))
            for name in self.roles()
        ]

    def personas(self) -> tuple[tuple[str, str], ...]:
        """Return the names of all personas, each with its description."""
        return tuple((persona.name, persona.description) for persona in self._configuration().personas.found)

    def persona(self, role: str, *, chosen: str) -> str:
        """Return the persona's name in `role`: the `chosen` one, the role's, or the default. Raises ConfigError."""
        now = self._configuration()
        speaker = _find_persona(now.personas, chosen, find_role(role, registries=now.registries))
        return speaker.name if speaker is not None else ""

    def notices(self, grant: Grant) -> tuple[str, ...]:
        """Return what the user has to know about the configuration, as far as it is about what `grant` uses."""
        return self._notices(grant)

    def useless_choices(self) -> tuple[str, ...]:
        """Return which choices of the user have no effect: the default model, and what ``--add-dir`` names."""
        found = []
        if (stored := self._settings().get(DEFAULT_MODEL_KEY)) and self.model(stored) is None:
            advice = "Choose another one with /model, or connect one: chatops connect URL"
            found.append(f"Your default model {stored} is not in the registry; the demo answers. {advice}")
        added, (site, _) = self._limits.sandbox, self._configuration().registries
        limits = limited_by(site.sandbox if site is not None else None, added)
        if left := describe_extra(beyond(added, limits)):
            found.append(f"--add-dir: the site registry does not permit {left}.")
        return tuple(found)

    def grant(self, settings: SessionSettings) -> Grant:
        """Return what a role may do now, in a chat or at a step.

        What a changed file takes away is gone already; what it adds is not there yet.

        Raises ConfigError for an unknown role, model or persona.
        """
        now = self._configuration()
        grant = self._grant_under(now, now.registries, settings)
        if now.changed is None:
            return grant
        # A pinned model that the changed file lacks can be used until that file is in force.
        later = self._grant_under(now, now.changed, replace(settings, model_pin="", persona=""))
        return later.intersection(grant).answered_by(later.answers)

    def check_decider(
        self, pending: PendingCall, by: Principal, known: Decider, *, foreign: bool, containment: Containment | None
    ) -> None:
        """Raise ConfigError if a user may not let a call run, see `Rights`."""
        level: AccessLevel | None = None
        if foreign:
            level = self._check_member(pending, by.member, known.level, containment)
        elif known.level is not None and by.uid == self._user.uid:
            level = min(self.level, known.level)
        why = why_cannot_approve(pending.approvers, by, requester=known.requester, level=level, groups=known.groups)
        if why:
            raise ConfigError(f"Nothing was decided: {why}.", advice=f"Who may: {approvers_phrase(pending.approvers)}.")

    def _check_member(
        self, pending: PendingCall, member: str, level: AccessLevel | None, containment: Containment | None
    ) -> AccessLevel:
        """Return the level of a role of the database here. Raises ConfigError if it could not use the tool itself."""
        grant = self._grant_of_member(member, level, role=pending.role)
        if pending.reason is AskReason.BUDGET:
            return grant.level
        if pending.call.name == CONTAINED_APPLY:
            judged = judge_apply(containment, (grant,))
        else:
            judged = grant.judge(pending.call.name, pending.facts)
        _require_permission(judged, member, pending.call.name)
        return grant.level

    def check_reviewer(self, settings: SessionSettings, member: str, level: AccessLevel | None) -> None:
        """Raise ConfigError if a role of the database with this level could not use all tools of a step itself."""
        grant = self._grant_of_member(member, level, role=settings.role)
        for spec in self.grant(settings).tools:
            _require_permission(grant.judge_tool(spec.name), member, spec.name)

    def _grant_of_member(self, member: str, level: AccessLevel | None, *, role: str) -> Grant:
        """Return how calls are judged in `role` for a role of the database. Raises ConfigError if it has no level."""
        if level is None:
            raise ConfigError(
                f"Nothing was decided: {member} has no level in the database.",
                advice="Its owner gives one: chatops store grant ROLE --level L",
            )
        return self.judging_grant(role, level=None, login=member, cap=level)

    def judging_grant(
        self, role: str, *, level: AccessLevel | None, login: str, cap: AccessLevel | None = None
    ) -> Grant:
        """Return how calls are judged in `role` for a user of this login, or for anyone else if it is empty.

        `level` stands for the levels in the user's registry; the site's hold as they are. The grant has no model: it
        is for judging only, and its level at most `cap`.

        Raises ConfigError for an unknown role.
        """
        now = self._configuration()
        site, own = now.registries
        if level is not None:
            users = {"*": UserSpec(name="*")} | {spec.name: spec for spec in own.users or ()}
            own = replace(own, users=tuple(replace(spec, access_level=level) for spec in users.values()))
        return resolve_grant(
            registries=(site, own),
            role=role,
            user=User(uid=NO_UID, login=login),
            access_cap=min((one for one in (now.access_cap, cap) if one is not None), default=None),
            specs=self._tools().specs_under(now),
            models=(),
            prompt="",
        )

    def change(self, settings: SessionSettings) -> tuple[Grant, Grant] | None:
        """Return the grants under the registry in force and under the last one read; None if they are the same."""
        now = self._configuration()
        if now.changed is None:
            return None
        return self._grant_under(now, now.registries, settings), self._grant_under(now, now.changed, settings)

    def sandbox_layers(self, settings: SessionSettings) -> SandboxLayers:
        """Return what the registries, the command line, the role and the session say about the limits of commands."""
        return sandbox_layers(
            self._configuration().registries,
            role=settings.role,
            command_line=self._limits.sandbox,
            session=settings.sandbox,
        )

    def broken(self) -> str:
        """Return why the registry file cannot be used, and what is in force instead; empty if it can."""
        return self._configuration().broken

    def offers(self, settings: SessionSettings, further: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
        """Return the tools that these settings would offer if the tools `further` existed too. Raises ConfigError."""
        now = self._configuration()
        grants = [self._grant_resolver(now, registries, settings, further)(approvals=()) for registries in now.both]
        offered_by_each = [{spec.name for spec in grant.tools} for grant in grants]
        bound = settings.child.layers if settings.child is not None else ()
        offered = grants[0].narrowed(*bound, revoked_layer(settings.revoked)).tools
        return tuple(spec for spec in offered if all(spec.name in names for names in offered_by_each))

    def _grant_resolver(
        self, now: Configuration, registries: Registries, settings: SessionSettings, further: Sequence[ToolSpec] = ()
    ) -> partial[Grant]:
        step, role = settings.step, find_role(settings.role, registries=registries)
        return partial(
            resolve_grant,
            registries=registries,
            role=settings.role,
            user=self._user,
            access_cap=now.access_cap,
            specs=(*self._tools().specs_under(now), *further),
            models=self.model_targets(role, settings.model_pin, now.registries),
            prompt="",
            approvals=self._limits.approvals if settings.child is None else (),
            extra_layers=_step_layers(step),
            at=None if step is None else step.place,
            command_line=self._limits.sandbox if settings.child is None else NARROWEST,
            session=settings.sandbox,
            default_rounds=DEFAULT_MAX_ROUNDS if step is None else step.step.max_iterations,
        )

    def _grant_under(self, now: Configuration, registries: Registries, settings: SessionSettings) -> Grant:
        """Return the grant under these registries, with prompt, limits of this run, and responder."""
        step, role = settings.step, find_role(settings.role, registries=registries)
        grant = self._resolve(self._grant_resolver(now, registries, settings))
        layers = self._prompt_layers_of(now, role, settings, tools=grant.tools)
        of_step = None if step is None else step.step.max_iterations
        # No second model words a summary or the answer of a step, which is an object.
        responder = "" if self._limits.summary or step is not None else role.responder
        grant = replace(
            grant,
            prompt=compose(layers),
            max_rounds=min(limit for limit in (grant.max_rounds, self._limits.max_rounds, of_step) if limit),
            run_budget=self._limits.budget,
            responder=self.responder(responder, now.registries),
        )
        if strictest(grant.budget, grant.run_budget).cost is not None:
            grant = replace(
                grant,
                models=tuple(self.look_up_price(target) for target in grant.models),
                responder=None if grant.responder is None else self.look_up_price(grant.responder),
            )
        if grant != self._returned:
            self._returned = grant
        return self._returned

    def _resolve(self, resolver: partial[Grant]) -> Grant:
        if self._resolved is not None:
            last_resolver, grant = self._resolved
            # All that is looked at on disk is among the arguments, so equal ones give an equal grant.
            if last_resolver.keywords == resolver.keywords:
                return grant
        grant = resolver()
        self._resolved = (resolver, grant)
        return grant

    def prompt_layers(self, settings: SessionSettings) -> tuple[PromptLayer, ...]:
        """Return the layers of the system prompt, named, as `grant` composes them."""
        now = self._configuration()
        spec = find_role(settings.role, registries=now.registries)
        return self._prompt_layers_of(now, spec, settings, tools=self.grant(settings).tools)

    def withheld(self, role: str, *, but: Collection[str] = ()) -> tuple[str, ...]:
        """Return the tools that `role` lists but does not get here, each with the reason; `but`: without these.

        Raises ConfigError for an unknown role.
        """
        registries, tools = self._configuration().registries, self._tools()
        found = find_role(role, registries=registries)
        if found.tools is not None:
            found = replace(found, tools=tuple(tool for tool in found.tools if not {tool, server_of(tool)} & {*but}))
        return withheld_tools(
            found,
            grant=self.grant(SessionSettings(role)),
            registries=registries,
            specs=tools.specs,
            absent=tools.unavailable,
        )

    def _prompt_layers_of(
        self, now: Configuration, role: RoleSpec, settings: SessionSettings, *, tools: Sequence[ToolSpec]
    ) -> tuple[PromptLayer, ...]:
        step = settings.step
        # No persona for a run whose result is a summary, or for a step, whose answer is an object.
        summary = self._limits.summary or settings.child is not None
        voiceless = summary or step is not None
        speaker = _find_persona(now.personas, settings.persona, role)
        skills = now.skills.found if any(spec.name == SKILL_TOOL for spec in tools) else ()
        return layers_for(
            base=f"{BASE_PROMPT}\n\n{SUMMARY_PROMPT}" if summary else BASE_PROMPT,
            persona="" if voiceless or speaker is None else speaker.text,
            persona_source="" if voiceless or speaker is None else speaker.source,
            notes=project_notes([(item.path, item.data.decode("utf-8-sig")) for item in now.trusted.notes]),
            environment=_environment_text(self._workspace),
            memory=memory_notes(self._memories.texts()),
            skills=skill_notes([(skill.name, skill.description) for skill in skills]),
            role=role.name,
            system_append=role.system_append,
            tools_on_offer=bool(tools),
            step="" if step is None else step_prompt(step.workflow, step.step),
            step_source="" if step is None else f"{step.place} in {step.workflow.source}",
        )


def _require_permission(judged: Judgement, member: str, tool: str) -> None:
    """Raise ConfigError if a tool is denied to a role of the database."""
    if judged.verdict is Verdict.DENY:
        raise ConfigError(
            f"Nothing was decided: {member} may not use {tool} ({judged.reason}).",
            advice="A member whose rights permit it can decide.",
        )


def _find_persona(personas: Personas, chosen: str, role: RoleSpec) -> Persona | None:
    found = personas.get(chosen or role.persona or DEFAULT_PERSONA)
    if found is None and chosen:
        names = ", ".join(persona.name for persona in personas.found) or "none"
        raise ConfigError(f"There is no persona {chosen!r}.", advice=f"Personas here: {names}.")
    return found or personas.get(DEFAULT_PERSONA)


def _step_layers(step: StepRights | None) -> tuple[Layer, ...]:
    """Return what a step adds to its role: its list of tools, or for a gate the one tool that runs commands."""
    if step is None:
        return ()
    if step.gate:
        only = Rule(tool=SHELL_TOOL, verdict=Verdict.ALLOW)
        return (Layer(name=f"gate {step.gate} of {step.place}", rules=(only,), default=Verdict.DENY),)
    return step_layers(step.step, at=step.place)


def _environment_text(workspace: Path) -> str:
    """Return workspace, system and date. The day and not the hour, so that prompt caches stay valid."""
    day = datetime.now().astimezone().strftime("%A, %d %B %Y")
    return f"Workspace: {workspace}\nSystem: {platform.system()}\nToday: {day}"


def current_user() -> User:
    """Return the user of the real uid; the login is ``#<uid>`` without a password database entry.

    ``$USER`` and ``$LOGNAME`` are not used, because anyone can set them.
    """
    uid = os.getuid()
    try:
        login = pwd.getpwuid(uid).pw_name
    except KeyError:
        login = f"#{uid}"
    return User(uid=uid, login=login, groups=_group_names())


def _group_names() -> frozenset[str]:
    names = set()
    for gid in {os.getgid(), *os.getgroups()}:
        try:
            names.add(grp.getgrgid(gid).gr_name)
        except KeyError:
            continue
    return frozenset(names)
