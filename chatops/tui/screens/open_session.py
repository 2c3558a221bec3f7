"""The session that the chat screen shows, with what belongs to it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chatops.engine.workflow.state import WorkflowState
    from chatops.runtime.session import Session
    from chatops.runtime.view import SessionView
    from chatops.runtime.workflow import WorkflowRun
    from chatops.tui.screens.run import FollowerPresenter, OwnRunPresenter, RunPresenter
    from chatops.wiring.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSession:
    """The open session with its workspace, and the presenters that only some sessions have."""

    session: "SessionView"
    workspace: "Workspace"
    own_run: "OwnRunPresenter | None" = None
    """The session's workflow run, if it is executed here."""
    follower: "FollowerPresenter | None" = None
    """Set if another process owns the session."""

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
            return self.follower.reader.run
        return self.own_run.run.state if self.own_run is not None else None

    @property
    def any_run(self) -> "RunPresenter | None":
        """The presenter of the session's workflow run, executed here or elsewhere."""
        return self.follower.run if self.follower is not None else self.own_run

    def owned(self, refused: str) -> "Session":
        """Return the session if this process owns it. Raises SessionHeldError, which begins with `refused`."""
        from chatops.runtime.session import owned  # the first paint does without it

        return owned(self.session, refused)

    async def leave(self) -> None:
        """Close the session and its presenters."""
        presenter = self.own_run or self.follower
        await (self.session.aclose() if presenter is None else presenter.leave())
        if presenter is None and self.session.session_id:
            await self.workspace.jobs.go_on(self.session.session_id)
