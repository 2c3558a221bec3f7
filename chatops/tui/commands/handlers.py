"""Handlers of the slash commands. Each calls the session, the host or the app and has no logic of its own."""

from typing import TYPE_CHECKING

from chatops.domain.ids import SessionId
from chatops.domain.messages import AssistantMessage
from chatops.tui.commands.face import Face
from chatops.tui.host import TextTopic
from chatops.tui.transcript.lines import with_joined_paragraphs

if TYPE_CHECKING:
    from chatops.runtime.view import SessionView


async def show_help(face: Face, argument: str) -> None:
    """Show keys and commands."""
    face.open_help()


async def role(face: Face, argument: str) -> None:
    """Switch the role by name, or let the user choose."""
    if argument:
        await face.session.owned("The role was not switched").switch_role(argument)
    else:
        face.open_roles()


async def model(face: Face, argument: str) -> None:
    """Pin a model by name, or let the user choose. ``role`` leaves the choice to the role again."""
    if argument:
        await choose_model(face, "" if argument == "role" else argument)
    else:
        face.open_models()


async def choose_model(face: Face, name: str) -> None:
    """Pin a model and say for how long. An empty name leaves the choice to the role again."""
    await face.session.owned("No model was pinned").pin_model(name or None)
    if not name:
        face.say("The role chooses the model again.")
    elif face.session.snapshot().is_demo:
        face.say(f"{name} answers in this session only.")
    else:
        face.say(f"{name} is your default model from now on.")


async def persona(face: Face, argument: str) -> None:
    """Switch the persona by name, or let the user choose."""
    if argument:
        await face.session.owned("The persona was not changed").set_persona(argument)
        face.say(f"Persona: {argument}, from the next model call on.")
    else:
        face.open_personas()


async def pending(face: Face, argument: str) -> None:
    """List everything that is pending in this workspace."""
    face.list_pending()


async def reload(face: Face, argument: str) -> None:
    """Apply a changed registry. The session shows what that changes."""
    await face.host.reload_registry()
    face.say("The registry is in force as its file is now.")


async def take_over(face: Face, argument: str) -> None:
    """Take over a session that is open elsewhere."""
    face.action_take_over()


async def new(face: Face, argument: str) -> None:
    """Start an empty session with the same role and pinned model.

    After a workflow run, whose steps have their own role and model, the role used here last applies.
    """
    now = face.session.snapshot()
    role = now.role if face.run is None else ""
    # The demo was chosen for one session.
    model = face.session.settings.model_pin if face.run is None and not now.is_demo else None
    await face.change_session(face.host.new_session(role=role, model=model))


async def sessions(face: Face, argument: str) -> None:
    """List the sessions."""
    face.open_sessions()


async def resume(face: Face, argument: str) -> None:
    """Open a session by id, or let the user choose."""
    if argument:
        await face.change_session(face.host.open_session(SessionId(argument)))
    else:
        face.open_sessions()


async def rename(face: Face, argument: str) -> None:
    """Rename this session."""
    title = " ".join(argument.split())
    if not title:
        face.say("Write the new title after the command: /rename Release notes")
        return
    await face.session.owned("The session was not renamed").rename(title)
    face.say(f"Renamed to {title}.")


async def fork(face: Face, argument: str) -> None:
    """Continue in a copy of the session."""
    session_id = face.session.snapshot().session_id
    if not session_id:
        face.say("There is nothing to copy yet: this conversation is empty.")
        return
    await face.change_session(face.host.fork_session(session_id))
    face.say("This is a copy; the original stays as it was.")


async def retry(face: Face, argument: str) -> None:
    """Retry a failed turn. In a run, retry what could not be started or saved."""
    if face.run is not None and not face.run.over:
        if not await face.run.retry():
            face.say("Nothing of this run waits to be tried again. A step that has failed: ctrl+g")
        return
    if not await face.session.owned("Nothing was retried").retry():
        face.say("There is no failed turn to try again.")


async def context(face: Face, argument: str) -> None:
    """Show the source of each part of the prompt, and how full the context window is."""
    face.show_text("Context", text=context_text(face.session))


async def cost(face: Face, argument: str) -> None:
    """Show tokens and cost of this session."""
    face.show_text("Cost", text=cost_text(face.session))


async def export(face: Face, argument: str) -> None:
    """Write the session to a file."""
    style, _, path = argument.partition(" ")
    style = style or "md"
    if style not in ("md", "html", "jsonl", "openai"):
        face.say("/export knows md, html, jsonl and openai: /export md notes.md")
        return
    session_id = face.session.snapshot().session_id
    if not session_id:
        face.say("There is nothing to write yet: this conversation is empty.")
        return
    where = await face.host.export_session(session_id, style=style, path=path.strip())
    face.say(f"Written to {where}.")


async def copy(face: Face, argument: str) -> None:
    """Copy the last answer to the clipboard."""
    answers = [message.text for message in face.session.snapshot().messages if isinstance(message, AssistantMessage)]
    spoken = [text for text in answers if text.strip()]
    if not spoken:
        face.say("There is no answer to copy yet.")
        return
    face.copy(spoken[-1])
    face.say("Copied the last answer, if this terminal lets programs do that.")


async def theme(face: Face, argument: str) -> None:
    """Switch the theme by name, or let the user choose."""
    if argument:
        face.use_theme(argument)
    else:
        face.open_themes()


async def leave(face: Face, argument: str) -> None:
    """Quit."""
    face.leave()


async def permissions(face: Face, argument: str) -> None:
    """Show the remembered permissions.

    ``revoke N`` withdraws a permission, ``deny TOOL`` takes a tool from this session.
    """
    verb, _, number = argument.partition(" ")
    if verb == "deny":
        tool = number.strip()
        if face.session.grant().tool(tool) is None:
            face.say(f"{tool or 'That'} is not on offer here. /tools shows what is.")
            return
        await face.session.owned("Nothing was revoked").revoke_tool(tool)
        face.say(f"{tool} is taken from this conversation, in every role.")
        return
    if verb == "revoke":
        if not number.strip().isdigit():
            face.say("Name it by its number in /permissions: /permissions revoke 2")
            return
        face.say(await face.host.revoke(face.session, number=int(number)))
        return
    await _text(face, "Permissions", topic="permissions", argument=argument)


async def tools(face: Face, argument: str) -> None:
    """Show what the model may use now."""
    await _text(face, "Tools", topic="tools", argument=argument)


async def policy(face: Face, argument: str) -> None:
    """Show the verdict on a call and the layer that gave it."""
    await _text(face, "Policy", topic="policy", argument=argument)


async def doctor(face: Face, argument: str) -> None:
    """Show what is configured and what is missing."""
    await _text(face, "Doctor", topic="doctor", argument=argument)


async def _text(face: Face, title: str, *, topic: TextTopic, argument: str) -> None:
    face.show_text(title, text=await face.host.text(topic, session=face.session, argument=argument))


def context_text(session: "SessionView") -> str:
    """Return the layers of the system prompt in order, each with its source."""
    snapshot = session.snapshot()
    lines = [f"{snapshot.context_used:,} of {snapshot.context_window:,} tokens used", ""]
    for layer in session.prompt_layers():
        lines.append(f"--- {layer.name} ({layer.source})")
        text = layer.text.strip()
        # A persona file has line breaks for an editor; the screen wraps for its own width.
        lines.append((with_joined_paragraphs(text) if layer.name == "persona" else text) or "(empty)")
        lines.append("")
    return "\n".join(lines).rstrip()


def cost_text(session: "SessionView") -> str:
    """Return the usage as text, also if the server does not report any."""
    snapshot = session.snapshot()
    usage = snapshot.usage
    if usage is None:
        return "The server has not said how many tokens were used."
    lines = [
        "In this conversation",
        f"  input      {usage.input_tokens:>10,} tokens",
        *([f"  cached     {usage.cached_tokens:>10,} tokens of the input"] if usage.cached_tokens else []),
        f"  output     {usage.output_tokens:>10,} tokens",
        f"  reasoning  {usage.reasoning_tokens:>10,} tokens",
        f"  cost       {'no price in the registry' if usage.cost is None else f'{usage.cost:.4f}'}",
    ]
    return "\n".join(lines)
