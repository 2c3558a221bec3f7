"""``chatops resume SESSION``: resume a turn whose calls have been decided."""

from argparse import Namespace

from chatops.commands import workflow
from chatops.commands.context import find_session, screen, warn_of_use, with_app
from chatops.domain.errors import ChatopsError
from chatops.headless.formats import OutputFormat
from chatops.headless.run import OnApproval, go_on, show_end
from chatops.headless.screen import Screen
from chatops.store.base import SessionInfo
from chatops.wiring.app import App


def run(arguments: Namespace) -> int:
    """Resume a session. Exit code as with -p; 3 again while a call is still pending.

    A workflow run is resumed as with `workflow resume`.
    """

    async def work(app: App) -> int:
        view = screen()
        output = OutputFormat(arguments.output_format)
        info = find_session(app.store, arguments.session)
        if info.run is not None and not info.run.result:
            return await workflow.resume(app, arguments)
        if info.active_turn is None:
            return _ended(app, info, view, output)
        session = await app.open_session(info.id, attended=False)
        warn_of_use(app, session.grant())
        return await go_on(session, screen=view, output=output, on_approval=OnApproval(arguments.on_approval))

    return with_app(arguments, work, via="headless", session=arguments.session)


def _ended(app: App, info: SessionInfo, view: Screen, output: OutputFormat) -> int:
    if info.last_turn is None:
        raise ChatopsError(
            f"Session {info.id} has no turn to continue.", advice=f"Send a message: chatops -r {info.id} -p PROMPT"
        )
    state = app.store.load_turn(info.last_turn)
    return show_end(state, workspace=info.workspace, screen=view, output=output)
