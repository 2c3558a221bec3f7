"""Handlers of slash commands. Each calls the session or the workspace, and returns what the screen then shows or does.

Those of ``/context``, ``/cost``, ``/search``, ``/workflow`` and of what was said before have modules of their own.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from chatops.domain.ids import SessionId
from chatops.domain.sanitize import sanitize
from chatops.domain.wording import plural
from chatops.policy.sandbox import parse_change
from chatops.policy.verdicts import SKILL_TOOL
from chatops.runtime.session import owned
from chatops.tui.commands.replies import (
    Choose,
    Context,
    FindText,
    Notify,
    Replies,
    ScreenAction,
    ShowAllPending,
    ShowHelp,
    ShowRights,
    ShowSession,
    ShowText,
    UseTheme,
)
from chatops.tui.composer import Completion
from chatops.tui.dialogs.choices import (
    ModelPicker,
    SessionPicker,
    job_picker,
    name_picker,
    pending_picker,
    role_picker,
    rule_picker,
    unusable_question,
)

ALL = "--all"
"""Argument of commands that then concern all sessions of the user, or all folders."""


async def about(context: Context, argument: str) -> Replies:
    """Show all keys and commands, or those about a word."""
    return (ShowHelp(argument),)


async def role(context: Context, argument: str) -> Replies:
    """Switch the role by name, or let the user choose."""
    if argument:
        session = owned(context.session, "The role was not switched")
        before = session.snapshot().notices
        await session.switch_role(argument)
        return tuple(Notify(notice) for notice in session.snapshot().notices if notice not in before)
    if context.settings_locked:
        return (Notify(context.settings_locked),)
    # Which tools each role has is computed in a thread, because there may be thousands of roles.
    rows = await asyncio.to_thread(context.workspace.roles)
    if pinned := context.session.settings.model_pin:
        rows = [replace(row, model=pinned) for row in rows]
    current = context.session.snapshot().role
    return (Choose(role_picker(rows, current=current), role, current),)


async def role_offers(context: Context, before: tuple[str, ...]) -> Sequence[Completion]:
    """Complete the roles, each with what its tools can do."""
    if before[1:]:
        return []
    rows = await asyncio.to_thread(context.workspace.roles)
    return [Completion(insert=row.name, text=row.name, note=" · ".join(row.rights)) for row in rows]


async def next_role(context: Context) -> Replies:
    """Switch to the role after the current one among the user's favourites, or among all roles."""
    if context.settings_locked:
        return (Notify(context.settings_locked),)
    existing = [row.name for row in await asyncio.to_thread(context.workspace.roles)]
    favourites = await asyncio.to_thread(context.workspace.user.favourite_roles)
    roles = [name for name in favourites if name in existing] or existing
    missing = [name for name in favourites if name not in existing]
    notices = [Notify(f"settings.yaml: there is no role {missing[0]} in favourite_roles.")] if missing else []
    current = context.session.snapshot().role
    following = roles[(roles.index(current) + 1) % len(roles) if current in roles else 0]
    if following == current:
        return (*notices, Notify("There is no other role to switch to."))
    return (*notices, *await role(context, following))


async def model(context: Context, argument: str) -> Replies:
    """Pin a model by name, or let the user choose among those that contain it. ``role`` lets the role choose again."""
    # A name with a slash is SERVER/MODEL: it need not be in the registry.
    if argument == "role" or "/" in argument or argument in [row.name for row in context.workspace.models()]:
        return await _choose_model(context, "" if argument == "role" else argument)
    if context.settings_locked:
        return (Notify(context.settings_locked),)
    current = context.session.snapshot().model
    picker = ModelPicker(context.workspace, current=current, wanted=argument)

    async def chosen(then: Context, name: str) -> Replies:
        return await _choose_model(then, name, as_default=not picker.only_here)

    return (Choose(picker, chosen),)


async def _choose_model(context: Context, name: str, *, as_default: bool = True) -> Replies:
    """Pin a model, or ask first if it will probably not answer. An empty name leaves the choice to the role again."""
    pin = partial(_pin_model, as_default=as_default)
    if problem := await context.workspace.model_problem(name):
        return (Choose(unusable_question(name, problem), pin, ""),)
    return await pin(context, name)


async def _pin_model(context: Context, name: str, *, as_default: bool) -> Replies:
    """Pin a model and say for how long."""
    session = owned(context.session, "No model was pinned")
    is_new_default = await session.pin_model(name or None, as_default=as_default)
    if not name:
        return (Notify("The role chooses the model again."),)
    if context.session.snapshot().is_demo:
        return (Notify(f"{name} answers in this session only."),)
    if not as_default:
        return (Notify(f"{name} answers in this session only. Your default model is the same as before."),)
    if not is_new_default:
        return (Notify(f"{name} is your default model already. It answers here."),)
    return (Notify(f"{name} is your default model from now on. Other sessions use it too, if their role names none."),)


async def persona(context: Context, argument: str) -> Replies:
    """Switch the persona by name, or let the user choose."""
    if argument:
        await owned(context.session, "The persona was not changed").set_persona(argument)
        return (Notify(f"Persona: {argument}, from the next model call on."),)
    if context.settings_locked:
        return (Notify(context.settings_locked),)
    known, current = context.workspace.personas(), context.workspace.persona(context.session)
    return (Choose(name_picker("Persona", names=known, current=current), persona),)


async def pending(context: Context, argument: str) -> Replies:
    """List everything that is pending in this workspace. If that is only this session, open its dialog.

    ``--all`` shows the calls of all sessions of the user, to decide them from here.
    """
    current = context.session.session_id
    if argument:
        return await _show_all_pending(context) if argument == ALL else (Notify(f"Usage: /pending [{ALL}]"),)
    rows = await context.workspace.sessions.pending()
    if not rows:
        return (Notify("Nothing is pending."),)
    if all(row.id == current for row in rows):
        return (ScreenAction.DECIDE,)
    return (Choose(pending_picker(rows, current=current), _open_pending),)


async def _show_all_pending(context: Context) -> Replies:
    calls = context.workspace.all_pending()
    waiting = await calls.waiting()
    interrupted = tuple(map(Notify, await calls.interrupted()))
    if not waiting:
        return interrupted or (Notify("No call waits for a decision, in any session."),)
    if all(call.session_id == context.session.session_id for call in waiting):
        return (*interrupted, ScreenAction.DECIDE)
    return (*interrupted, ShowAllPending(calls, waiting, _open_pending))


async def _open_pending(context: Context, session_id: str) -> Replies:
    """Open the dialog for what is pending in a session."""
    if session_id == context.session.session_id:
        return (ScreenAction.DECIDE,)
    return (ShowSession(lambda: context.workspace.sessions.open(SessionId(session_id))), ScreenAction.DECIDE)


async def jobs(context: Context, argument: str) -> Replies:
    """List the jobs. The chosen one is opened, with the dialog for what it waits for."""
    listed = await context.workspace.jobs.listed()
    if not listed:
        return (Notify("There are no jobs. /background hands the running turn over."),)
    return (Choose(job_picker(listed, current=context.session.session_id), _open_job),)


async def _open_job(context: Context, session_id: str) -> Replies:
    if folder := await context.workspace.sessions.other_folder(SessionId(session_id)):
        where = sanitize(folder, newlines=False)
        return (Notify(f"This job works in {where}. To open it there: chatops -r {session_id}"),)
    return await _open_pending(context, session_id)


async def background(context: Context, argument: str) -> Replies:
    """Let a process of its own continue the turn, as soon as no step of it runs here."""
    session = owned(context.session, "The turn was not handed over")
    if not session.unfinished:
        # A notice, and no error, which would put the command back into the message field.
        return (Notify("No turn is under way here. chatops -p PROMPT --background starts one."),)
    return (Notify(await context.workspace.jobs.move_to_background(session)),)


async def decide_next(context: Context, *, here: bool) -> Replies:
    """Go to the session with something to decide next. If that is `here`, say how many others there are."""
    sessions, current = context.workspace.sessions, context.session.session_id
    if here:
        others = sum(1 for row in await sessions.pending() if row.id != current)
        text = f"{plural(others, 'more session')} with something pending: /pending"
        return (Notify(text),) if others else ()
    session_id = await sessions.next_pending()
    if session_id is None or session_id == current:
        return (Notify("Nothing is pending."),)
    return (ShowSession(lambda: sessions.open(session_id)), ScreenAction.DECIDE)


async def reload(context: Context, argument: str) -> Replies:
    """Apply a changed registry, new skills and tools. The session shows what that changes."""
    asks = await context.workspace.reload()
    notice = Notify("The registry file is in force. Skills were read again.")
    return (notice, ScreenAction.TRUST) if asks else (notice,)


async def contain(context: Context, argument: str) -> Replies:
    """Contain the unfinished turn or the next one, end that, or take back what was applied last."""
    session = owned(context.session, "Nothing was contained")
    match argument.strip():
        case "":
            is_this_turn = await session.actions.contain()
            next_turn = "The turn of your first queued message" if session.snapshot().queued else "The next turn"
            turn = "This turn" if is_this_turn else next_turn
            return (Notify(f"{turn} works on a copy of the workspace. You are asked once, at its end."),)
        case "off":
            is_this_turn = await session.actions.contain(on=False)
            ends = "The containment ends with this round." if is_this_turn else "The next turn is not contained."
            return (Notify(ends),)
        case "undo":
            await session.actions.undo_contained()
            return ()
        case _:
            return (Notify("Usage: /contain [off|undo]"),)


async def new(context: Context, argument: str) -> Replies:
    """Start an empty session with the same role and pinned model, unless that was chosen for one session.

    After a workflow run, whose steps have their own role and model, the role used here last applies.
    """
    session = context.session
    snapshot = session.snapshot()
    role = snapshot.role if context.run is None else ""
    pin = session.settings.model_pin
    # Any other pinned model was chosen for one session, as the demo always is.
    is_kept = not pin or (pin == context.workspace.default_model() and not snapshot.is_demo)
    model = pin if context.run is None and is_kept else None
    return (ShowSession(lambda: context.workspace.sessions.new(role=role, model=model)),)


async def sessions(context: Context, argument: str) -> Replies:
    """List the sessions, filtered by the words given."""
    session, all_sessions = context.session, context.workspace.sessions
    if not (rows := await all_sessions.listed()):
        return (Notify("This folder has no session yet. Your first message starts one."),)
    picker = SessionPicker(rows, session=session, sessions=all_sessions, wanted=" ".join(argument.split()))

    async def chosen(then: Context, session_id: str) -> Replies:
        opened = await resume(then, session_id)
        text = picker.found.get(session_id)
        return opened if text is None else (*opened, FindText(picker.searched, text))

    return (Choose(picker, chosen, session.session_id),)


async def resume(context: Context, argument: str) -> Replies:
    """Open a session by id, or let the user choose. One of another folder opens as a copy.

    What was approved there must not run here, and what is approved here must not run there.
    """
    if not argument:
        return await sessions(context, "")
    all_sessions, session_id = context.workspace.sessions, SessionId(argument)
    if folder := await all_sessions.other_folder(session_id):
        notice = (
            f"This is a copy of a session held in {sanitize(folder, newlines=False)}. Its tools work in this folder."
            " What was approved there asks again. Left without a word, the copy is deleted."
            f" To continue there: chatops -r {argument}"
        )
        return (ShowSession(lambda: all_sessions.fork(session_id)), Notify(notice))
    return (ShowSession(lambda: all_sessions.open(session_id)),)


async def rename(context: Context, argument: str) -> Replies:
    """Rename this session."""
    title = " ".join(argument.split())
    if not title:
        return (Notify("Write the new title after the command: /rename Release notes"),)
    await owned(context.session, "The session was not renamed").rename(title)
    return (Notify(f"Renamed to {title}."),)


async def fork(context: Context, argument: str) -> Replies:
    """Continue in a copy of the session."""
    session_id = context.session.snapshot().session_id
    if not session_id:
        return (Notify("There is nothing to copy yet: this session is empty."),)
    copied = Notify("This is a copy; the original stays as it was.")
    return (ShowSession(lambda: context.workspace.sessions.fork(session_id)), copied)


async def export(context: Context, argument: str) -> Replies:
    """Write the session to a file."""
    style, _, path = argument.partition(" ")
    style = style or "md"
    if style not in ("md", "html", "jsonl", "openai"):
        return (Notify("/export knows md, html, jsonl and openai: /export md notes.md"),)
    session_id = context.session.snapshot().session_id
    if not session_id:
        return (Notify("There is nothing to write yet: this session is empty."),)
    written = await context.workspace.sessions.export(session_id, style=style, path=path.strip())
    return (Notify(f"Written to {written}."),)


async def theme(context: Context, argument: str) -> Replies:
    """Switch the theme by name, or let the user choose."""
    if not argument:
        picker = name_picker(
            "Theme", names=[(name, "") for name in context.themes], current=context.theme, on_move=context.preview_theme
        )
        return (Choose(picker, theme),)
    if argument not in context.themes:
        return (Notify(f"There is no theme {argument}. /theme lists them."),)
    return (UseTheme(argument),)


async def permissions(context: Context, argument: str) -> Replies:
    """Show the remembered rules.

    ``revoke ID`` revokes one, ``revoke`` lets the user choose it, ``deny TOOL`` takes a tool from this session.
    """
    session = context.session
    verb, _, rest = argument.partition(" ")
    rest = rest.strip()
    if verb == "deny":
        if session.grant().tool(rest) is None:
            return (Notify(f"{rest or 'That'} is not available here. /tools lists what is."),)
        await owned(session, "Nothing was revoked").revoke_tool(rest)
        return (Notify(f"{rest} is revoked for this session, in every role."),)
    if verb == "revoke":
        if rest:
            return await _revoke_rule(context, rest)
        return (Choose(rule_picker(await context.workspace.rights.rules(session)), _revoke_rule),)
    return (ShowText("Permissions", await context.workspace.rights.permissions(session)),)


async def permission_offers(context: Context, before: tuple[str, ...]) -> Sequence[Completion]:
    """Complete the remembered rules by their numbers, and the tools that can be taken away."""
    match before[1:]:
        case ("revoke",):
            rules = await context.workspace.rights.rules(context.session)
            return [
                Completion(insert=rule.id, text=rule.id, note=sanitize(rule.rule, newlines=False)) for rule in rules
            ]
        case ("deny",):
            return [Completion(insert=tool.name, text=tool.name) for tool in context.session.grant().tools]
        case _:
            return []


async def _revoke_rule(context: Context, rule: str) -> Replies:
    return (Notify(await context.workspace.rights.revoke(context.session, rule=rule)),)


async def sandbox(context: Context, argument: str) -> Replies:
    """Show what commands see, write and reach, or change it for this session: ``git commit``, ``hosts +NAME``."""
    if not argument:
        return (ShowText("Sandbox", await asyncio.to_thread(context.workspace.rights.limits, context.session)),)
    change = None if argument == "reset" else parse_change(argument)
    await owned(context.session, "Nothing has changed").change_sandbox(change)
    if change is None:
        return (Notify("The sandbox is again as your registry says."),)
    return (Notify(f"Sandbox for this session: {change}. What this adds counts from your next message on."),)


async def trust(context: Context, argument: str) -> Replies:
    """Ask about what the workspace brings, or forget what is trusted: ``revoke``."""
    if argument == "revoke":
        was_trusted = await context.workspace.trust.revoke()
        return (Notify(f"Nothing in this folder {'is trusted any more' if was_trusted else 'was trusted'}."),)
    if argument:
        return (Notify("Usage: /trust [revoke]"),)
    return (ScreenAction.TRUST,)


async def tools(context: Context, argument: str) -> Replies:
    """Show what the model may use now."""
    return (ShowText("Tools", await context.workspace.rights.tools(context.session)),)


async def policy(context: Context, argument: str) -> Replies:
    """Show the verdict on a call and the layer that gave it, or without a call those on all tools in all roles."""
    if not argument:
        return (ShowRights(await context.workspace.rights.matrix(context.session)),)
    return (ShowText("Policy", await context.workspace.rights.verdict(context.session, argument)),)


async def doctor(context: Context, argument: str) -> Replies:
    """Show what is configured and what is missing."""
    return (ShowText("Doctor", await context.workspace.doctor()),)


async def skills(context: Context, argument: str) -> Replies:
    """Show each skill with its source, the tools that it permits, and what is wrong with others."""
    return (ShowText("Skills", await asyncio.to_thread(_skills_text, context)),)


def _skills_text(context: Context) -> str:
    known, grant = context.workspace.skills(), context.session.grant()
    lines = []
    for skill in known.found:
        lines += [f"{skill.name} ({skill.source})", f"  {skill.description}"]
        if skill.use is not None:
            allowed = [*skill.use.tools, *(f"{tool} (asks)" for tool in skill.use.asks)]
            lines.append(f"  Permits only, while in use: {', '.join(allowed) or 'no tool'}")
        if skill.files:
            lines.append(f"  Files: {', '.join(name for name, _ in skill.files)}")
        lines.append("")
    if not lines:
        lines += [f"There are no skills. Put one into {context.workspace.skills_folder} as NAME/SKILL.md.", ""]
    elif grant.tool(SKILL_TOOL) is None:
        lines += [f"Role {grant.role} does not see them: its tools do not list {SKILL_TOOL}.", ""]
    return sanitize("\n".join([*lines, *known.warnings]).rstrip())


async def mcp(context: Context, argument: str) -> Replies:
    """Show the servers with their state and tools, connect to one again, or log in at one."""
    verb, _, name = argument.partition(" ")
    name = name.strip()
    if verb and (verb not in ("reconnect", "login") or not name):
        return (Notify("Usage: /mcp [reconnect NAME|login NAME]"),)
    if verb == "login":
        return (ShowText(f"Log in at {name}", await context.workspace.log_in(name)),)
    return (ShowText("MCP servers", context.workspace.servers(reconnect=name)),)
