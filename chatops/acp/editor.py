"""Requests and notifications to an editor over the Agent Client Protocol, and its answers."""

import logging
import secrets
import time
from typing import Any, Literal

import acp
from acp import helpers, schema

from chatops.acp.client import CallAnswer, Reply
from chatops.acp.commands import COMMANDS
from chatops.acp.show import Card, Commands, Plan, Settings, Text, Update, Window
from chatops.acp.stdio import Stdio
from chatops.domain.canonical import JsonValue
from chatops.domain.decisions import Answer, AnswerAction
from chatops.headless.json_values import dumps

log = logging.getLogger(__name__)

MAX_FORM = 64_000
"""Characters of the answers in a form, as JSON."""
_TEXT_UPDATES = {
    "user": helpers.update_user_message_text,
    "agent": helpers.update_agent_message_text,
    "thought": helpers.update_agent_thought_text,
}


class Editor:
    """The editor, for one session."""

    def __init__(self, conn: acp.Client, stdio: Stdio, *, has_forms: bool) -> None:
        self._conn, self._stdio, self.has_forms = conn, stdio, has_forms
        self.session_id = ""

    async def show(self, update: Update) -> None:
        """Show what has happened or changed."""
        message: Any = None
        match update:
            case Text(text=text, by=by):
                message = _TEXT_UPDATES[by](text) if text else None
            case Card(opens=True):
                message = schema.ToolCallStart(session_update="tool_call", **_call_fields(update))
            case Card():
                message = schema.ToolCallProgress(session_update="tool_call_update", **_call_fields(update))
            case Plan(steps=steps):
                message = helpers.update_plan([helpers.plan_entry(text, status=state) for text, state in steps])
            case Window(used=used, size=size, cost=cost):
                spent = None if cost is None else schema.Cost(amount=cost, currency="USD")
                message = schema.UsageUpdate(session_update="usage_update", used=used, size=size, cost=spent)
            case Commands():
                message = helpers.update_available_commands(map(_command, COMMANDS))
            case Settings(role=role):
                await self._conn.session_update(self.session_id, helpers.update_current_mode(role))
                options = config_options(update)
                message = schema.ConfigOptionUpdate(session_update="config_option_update", config_options=options)
        if message is not None:
            await self._conn.session_update(self.session_id, message)

    async def ask(self, card: Card) -> CallAnswer | None:
        """Ask about a call. Return None if the editor gave no answer, or one that was not offered."""
        # The options of each question are new ones, so that no answer to an earlier question fits.
        mark = secrets.token_hex(4)
        offers: dict[str, tuple[Reply, str, Literal["reject_once", "allow_once"]]] = {
            f"reject-{mark}": ("reject", "Reject", "reject_once"),
            **({f"reason-{mark}": ("reason", "Reject with a reason", "reject_once")} if self.has_forms else {}),
            f"allow-{mark}": ("allow", "Allow once", "allow_once"),
        }
        options = [
            schema.PermissionOption(option_id=option_id, name=label, kind=kind)
            for option_id, (_, label, kind) in offers.items()
        ]
        call = schema.ToolCallUpdate(**_call_fields(card))
        try:
            reply = await self._conn.request_permission(self.session_id, call, options)
        except (acp.RequestError, ValueError) as error:
            log.info("the editor did not answer a question: %s", error)
            return None
        finally:
            answered_at = time.monotonic()
            # `Stdio.asked_at` has the time by the id of the first option. It has none if the question was not written.
            seconds = answered_at - self._stdio.asked_at.pop(options[0].option_id, answered_at)
        chosen = reply.outcome.option_id if isinstance(reply.outcome, schema.AllowedOutcome) else ""
        return CallAnswer(reply=offers[chosen][0], after_s=seconds) if chosen in offers else None

    async def form(self, message: str, fields: JsonValue) -> Answer | None:
        """Show a form, and return what was answered; None if the editor has failed."""
        try:
            requested = schema.ElicitationSchema.model_validate(fields)
            mode = schema.ElicitationFormSessionMode(session_id=self.session_id, requested_schema=requested)
            reply = await self._conn.create_elicitation(message, mode)
        except (acp.RequestError, ValueError) as error:
            log.info("the editor did not show a form: %s", error)
            return None
        if isinstance(reply, schema.AcceptElicitationResponse):
            content = dumps(reply.content or {})
            return Answer(action=AnswerAction.ACCEPT, content=content) if len(content) <= MAX_FORM else None
        declined = isinstance(reply, schema.DeclineElicitationResponse)
        return Answer(action=AnswerAction.DECLINE if declined else AnswerAction.CANCEL)


def _command(name: str) -> schema.AvailableCommand:
    hint, about = COMMANDS[name]
    typed = schema.AvailableCommandInput(schema.UnstructuredCommandInput(hint=hint)) if hint else None
    return schema.AvailableCommand(name=name, description=about, input=typed)


def _call_fields(card: Card) -> dict[str, Any]:
    """Return the fields of a call. An update without a field changes nothing of it."""
    content: list[Any] = [helpers.tool_content(helpers.text_block(card.text))] if card.text else []
    content += [helpers.tool_diff_content(diff.path, diff.new, diff.old) for diff in card.diffs]
    fields: dict[str, Any] = {"tool_call_id": card.id, "status": card.status}
    if card.title:
        fields |= {"title": card.title, "kind": card.kind, "raw_input": card.arguments}
    if content:
        fields["content"] = content
    if card.paths:
        fields["locations"] = [schema.ToolCallLocation(path=path) for path in card.paths]
    return fields


def config_options(settings: Settings) -> list[Any]:
    """Return the options of a session that the protocol has no own method for: the model."""
    choices = [schema.SessionConfigSelectOption(value=value, name=label) for value, label in settings.models]
    option = schema.SessionConfigOptionSelect(
        type="select", id="model", name="Model", category="model", current_value=settings.model, options=choices
    )
    return [option]
