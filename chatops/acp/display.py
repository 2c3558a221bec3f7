"""Show a session in an editor: send each event once, and role, model and steps whenever they have changed."""

from typing import TYPE_CHECKING

from chatops.acp.client import Client
from chatops.acp.show import Card, Commands, Settings, Update, Window, notice, plan, proposed_card, updates
from chatops.domain.events import (
    AnswerRefused,
    CallDecided,
    CallProposed,
    Event,
    Notice,
    ReasoningDelta,
    ReviewRequested,
    RoleSwitched,
    TextDelta,
    ThoughtFinished,
    ToolFinished,
    TurnCorrected,
    TurnFinished,
    TurnStarted,
)
from chatops.domain.ids import CallId
from chatops.domain.tools import NO_CAPABILITIES
from chatops.engine.workflow.view import run_view
from chatops.runtime.descriptions import way_to_continue
from chatops.runtime.session_follower import SessionFollower
from chatops.runtime.view import SessionView
from chatops.wiring.workspace import Workspace

if TYPE_CHECKING:
    from chatops.engine.workflow.state import WorkflowState

ROLES_OWN = ":role"
"""Value of the option for the model that is the role's own."""


class Display:
    """The editor's picture of one session."""

    def __init__(self, client: Client, workspace: Workspace, view: SessionView) -> None:
        self._client, self._workspace = client, workspace
        self.view = view
        """The session as it is open now. `EditorSession` sets another one when it opens the session again."""
        self.decided_here: set[CallId] = set()
        """Calls that the user has decided in this editor, which shows these decisions by itself."""
        self._shown_events: set[tuple[str, str]] = set()
        """Keys, as `_event_key` makes them, of the events that the editor has got."""
        self._streamed_rounds: set[str] = set()
        """Rounds whose text was shown as it came."""
        self._opened_cards: set[str] = set()
        """The ids of calls whose card the editor has got."""
        self._noticed: set[str] = set()
        """Sentences that `show_notices_once` does not show again."""
        self._last_updates: dict[type, Update] = {}
        """The last update of each kind that `show_state` has shown."""

    @property
    def settings(self) -> Settings:
        """The role in force, the model that the user has chosen (`ROLES_OWN`: that of the role), and the others."""
        chosen, models = self.view.settings.model_pin or ROLES_OWN, {ROLES_OWN: "The role's own model"}
        models |= {row.name: row.label or row.name for row in self._workspace.models() if not row.missing}
        models.setdefault(chosen, chosen)
        return Settings(self.view.snapshot().role, chosen, tuple(models.items()))

    @property
    def run(self) -> "WorkflowState | None":
        """The session's workflow run, whether this process owns it or not."""
        if (own := self._workspace.runs.run_of(self.view)) is not None:
            return own.state
        return self.view.run if isinstance(self.view, SessionFollower) else None

    def has_card(self, call: CallId) -> bool:
        """Return True if the editor has got a card of a call, which can only be changed from then on."""
        return call in self._opened_cards

    def skip(self, event: Event) -> None:
        """Treat an event as shown: the editor has it from an earlier process."""
        if (key := _event_key(event)) is not None:
            self._shown_events.add(key)
        if isinstance(event, CallProposed):
            self._opened_cards.add(event.id)

    async def show_if_new(self, event: Event, *, typed_here: bool) -> bool:
        """Show an event that was not shown yet. Return True if it is one. `typed_here` is as for `show.updates`."""
        key = _event_key(event)
        was_streamed = isinstance(event, ThoughtFinished) and event.parent_id in self._streamed_rounds
        is_new = key is None or not (was_streamed or key in self._shown_events)
        if key is not None:
            self._shown_events.add(key)
        if is_new and not (isinstance(event, CallDecided) and event.id in self.decided_here):
            await self._show_event(event, typed_here=typed_here)
        return is_new

    async def _show_event(self, event: Event, *, typed_here: bool) -> None:
        workspace = str(self.view.workspace)
        if isinstance(event, TextDelta | ReasoningDelta):
            self._streamed_rounds.add(event.parent_id)
        if isinstance(event, ToolFinished) and not self.has_card(event.id):
            # A replayed call has only its end.
            capabilities = self.view.capabilities(event.tool)
            await self.show(proposed_card(event.id, event.tool, event.arguments, capabilities, workspace=workspace))
        capabilities = self.view.capabilities(event.tool) if isinstance(event, CallProposed) else NO_CAPABILITIES
        for update in updates(event, capabilities, workspace=workspace, typed_here=typed_here):
            await self.show(update)
        if isinstance(event, ReviewRequested):
            way = way_to_continue(self.view.session_id, self.run.spec if self.run is not None else None)
            await self.show_notices(f"Step {event.name} waits for your review. Review it in chatops: {way}")
        if isinstance(event, RoleSwitched | TurnFinished):
            await self.show_state()

    async def show(self, update: Update) -> None:
        """Show an update."""
        if isinstance(update, Card):
            self._opened_cards.add(update.id)
        await self._client.show(update)

    async def show_notices(self, *sentences: str) -> None:
        """Show sentences of chatops, and nothing for a blank one."""
        for text in sentences:
            if text.strip():
                await self._client.show(notice(text))

    async def show_notices_once(self, *sentences: str) -> None:
        """Show those of the sentences that this method has not shown before."""
        await self.show_notices(*(text for text in dict.fromkeys(sentences) if text not in self._noticed))
        self._noticed.update(sentences)

    async def show_state(self) -> None:
        """Show role, model, steps and usage if they have changed, wherever that was done."""
        now, turn, run = self.view.snapshot(), self.view.state, self.run
        updates: list[Update] = [Commands(), self.settings]
        if run is not None:
            updates.append(plan(run_view(run, () if turn is None else (turn,))))
        if now.context_window:
            cost = now.usage.cost if now.usage is not None else None
            updates.append(Window(now.context_used, now.context_window, cost))
        for update in updates:
            if self._last_updates.get(type(update)) != update:
                self._last_updates[type(update)] = update
                await self._client.show(update)


def _event_key(event: Event) -> tuple[str, str] | None:
    """Return the key of an event that may come twice, as when it is replayed; None for one that comes once."""
    match event:
        case TurnStarted() | TurnCorrected() | CallProposed() | ToolFinished() | Notice() | AnswerRefused():
            return type(event).__name__, event.id
        case ThoughtFinished():
            return "ThoughtFinished", event.parent_id
        case _:
            return None
