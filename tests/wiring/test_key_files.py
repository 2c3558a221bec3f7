"""Key files that either registry names are closed to every tool, wherever they are."""

import asyncio
import json

import pytest

from chatops.domain.ids import CallId, SessionId
from chatops.domain.tools import ToolCall
from tests.wiring.conftest import Bench


@pytest.mark.parametrize("whose", ["user", "site", "link"])
def test_a_key_file_in_the_workspace_cannot_be_read(bench: Bench, whose: str) -> None:
    key = bench.workspace / "gateway.txt"
    key.write_text("sk-1")
    key.chmod(0o600)
    named = bench.workspace / "named.txt"
    named.symlink_to(key)
    models = {"m": {"api_url": "http://h/v1", "api_key_file": str(named if whose == "link" else key)}}
    bench.write(models={} if whose == "site" else models)
    if whose == "site":
        bench.write_site(models=models)
    app = bench.app()
    assert key.resolve() in app.limits.protected_paths()
    for name, arguments in (
        ("file_read", {"path": "gateway.txt"}),
        ("file_write", {"path": "gateway.txt", "content": "x"}),
    ):
        tool = app.catalog.get(name)
        assert tool is not None
        call = ToolCall(id=CallId("c.1.1"), name=name, arguments=json.dumps(arguments))
        assert asyncio.run(tool.inspect(call, app.limits.context(SessionId("s"), call.id, tool=tool))).refusal
