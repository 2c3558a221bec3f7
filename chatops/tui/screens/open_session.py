"""The session that the chat screen shows, with what belongs to it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chatops.engine.workflow.state import WorkflowState
    from chatops.runtime.session import Session
    from chatops.runtime.session_follower import SessionFollower
    from chatops.runtime.view import SessionView, Snapshot
    from chatops.runtime.workflow import WorkflowRun
    from chatops.tui.screens.run import OwnRunPresenter, RunPresenter
    from chatops.wiring.workspace import Workspace


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class OpenSession:
    """The open session with its workspace, and the presenters that only some sessions have."""

    session: "SessionView"
    workspace: "Workspace"
    own_run: "OwnRunPresenter | None" = None
    """The session's workflow run, if it is executed here."""
    any_run: "RunPresenter | None" = None
    """The presenter of the session's workflow run, executed here or elsewhere."""
    follower: "SessionFollower | None" = None
    """The session, if another process owns it."""
    claimed: bool = False
    """True once the lease of a followed session was obtained, so that it is opened here."""

    @property
    def follows(self) -> bool:
        """True if another process owns the session."""
        return self.follower is not None

    @property
    def run(self) -> "WorkflowRun | None":
        """The session's workflow run if it is executed here, or None."""
        return self.own_run.run if self.own_run is not None else None

    @property
    def run_state(self) -> "WorkflowState | None":
        """The workflow run that the session belongs to, as committed or stored."""
        if self.follower is not None:
            return self.follower.run
        return self.own_run.run.state if self.own_run is not None else None

    def elsewhere(self, snapshot: "Snapshot") -> str:
        """Return where its turn runs if another process executes it; empty if none does.

        That process may not have taken the decisions yet that were made here. Only it has the text of a reply until
        that is stored.
        """
        from chatops.domain.events import TurnStatus  # the first paint does without it
        from chatops.engine.state import AwaitingModel

        decided = snapshot.status is TurnStatus.PAUSED and not snapshot.pending
        if self.follower is None or not self.follower.is_executed or not (snapshot.runs or decided):
            return ""
        where = "in the background" if self.follower.is_job else "in another window"
        if self.session.state is not None and isinstance(self.session.state.phase, AwaitingModel):
            return f"the model replies {where}; its text comes at the end"
        return f"the turn continues {where}"

    def owned(self, refused: str) -> "Session":
        """Return the session if this process owns it. Raises SessionHeldError, which begins with `refused`."""
        from chatops.runtime.session import owned  # the first paint does without it

        return owned(self.session, refused)

    async def leave(self) -> str:
        """Close the session and its presenters. Keep the lease if the session is now owned here.

        Return what becomes of its turn in the background, as a sentence; empty if none continues there.
        """
        if self.any_run is not None:
            await self.any_run.leave()
        if self.follower is not None and self.claimed:
            self.follower.stop()
        elif self.own_run is None:
            await self.session.aclose()
        if self.own_run is not None or not self.session.session_id:
            return ""
        if self.follower is None:
            return await self.workspace.jobs.restart(self.session.session_id)
        if not self.follower.is_job or self.follower.lease is None:
            return ""
        from chatops.wiring.jobs import JobState, state_sentence  # the first paint does without it

        return state_sentence(self.follower.session_id, JobState.RUNNING)
