"""The questions whether to trust what acts for the user: files of the workspace, own tools, starts of MCP servers."""

import asyncio
from collections.abc import Sequence

from chatops.config.trust import TrustAnswer, TrustQuestion
from chatops.config.workspace_files import ItemKind
from chatops.wiring.app import App


class TrustQuestions:
    """The questions about files of the workspace, the user's own tools, and MCP servers that wait for a start."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def current(self) -> TrustQuestion:
        """Return what there is to ask about now, read again."""
        starts = self._app.server_trust.question
        tools = await asyncio.to_thread(self._app.own_tools_trust.reread)
        folder = await asyncio.to_thread(self._app.trust.reread)
        found = next((question for question in (starts, tools, folder) if question.is_open), folder)
        # Without an open question, one that was declined can be answered otherwise.
        return starts if starts.is_answerable and not found.is_answerable else found

    def about_files(self) -> TrustQuestion | None:
        """Return the question about files, as they were read last; None if there is none."""
        questions = (trust.question for trust in (self._app.own_tools_trust, self._app.trust))
        return next((question for question in questions if question.is_open), None)

    def about_starts(self) -> TrustQuestion | None:
        """Return the question about MCP servers that wait for the user's yes to start; None if none does."""
        question = self._app.server_trust.question
        return question if question.is_open else None

    async def answer(self, question: TrustQuestion, *, trusted: bool) -> Sequence[str]:
        """Trust exactly what was asked about, or ignore it until it changes. Return a sentence for each change since.

        Raises ChatopsError if the answer cannot be stored or the folder was replaced.
        """
        tools = self._app.own_tools_trust
        trust = tools if question.path == tools.question.path else self._app.trust
        if question.kind is ItemKind.SERVER_START:
            trust = self._app.server_trust
        answer = TrustAnswer.TRUSTED if trusted else TrustAnswer.DECLINED
        await asyncio.to_thread(self._app.store.log_trust, question.path, answer, [row.item for row in question.usable])
        changed = await asyncio.to_thread(trust.trust if trusted else trust.decline, question)
        for listed in question.listed if trusted and trust is self._app.server_trust else ():
            self._app.servers.reconnect(listed.item.path)
        self._app.open_sessions.registry_changed()
        return changed

    async def revoke(self) -> bool:
        """Forget what the user trusts in this workspace. Return False if nothing was trusted."""
        files = await asyncio.to_thread(self._app.trust.revoke)
        servers = await asyncio.to_thread(self._app.server_trust.revoke)
        self._app.open_sessions.registry_changed()
        if files or servers:
            folder = str(self._app.workspace)
            await asyncio.to_thread(self._app.store.log_trust, folder, TrustAnswer.REVOKED)
        return files or servers
