"""Servers that misbehave: each call runs at most once, is bounded, and says what happened."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chatops.domain.sandbox import NARROWEST, SandboxLevel
from chatops.domain.tools import Outcome
from chatops.mcp.server import ServerState
from chatops.sandbox.confinement import confinement
from tests.mcp.conftest import World, entry, tool
from tests.support.mcp_server import ESCAPES
from tests.support.waiting import until

RAW = ("\x1b", "\x9b", "\u202e", "\x07")


async def test_all_pages_are_listed_under_the_names_of_server_and_tool(world: World) -> None:
    world.lists(tool("echo"), tool("echo_2"), tool("echo"), tool("file_read"), tool("a.b/c\u0430"))
    async with world.servers(h=entry()) as servers:
        (status,) = servers.statuses()
        assert (status.state, status.protocol) == (ServerState.READY, "2025-11-25")
        assert status.tools == ("h__echo", "h__echo_2", "h__file_read", "h__a_b_c_")
        assert status.warnings == ("it lists echo twice; the first one is used",)
        assert status.sandbox
        assert (await world.run(servers, "h__echo", text="hi")).content == "echo: hi"
    assert world.calls == ["echo"]


async def test_the_title_of_a_tool_is_kept_for_its_card(world: World) -> None:
    world.lists({**tool("echo"), "title": "Say again"}, {**tool("close"), "annotations": {"title": "Close it"}})
    for _ in ("listed", "remembered"):
        async with world.servers(h=entry()) as servers:
            verbs = [known.spec.capabilities.verb for known in servers.tools()]
            assert verbs == ["h: Say again", "h: Close it"]


async def test_a_server_that_exits_in_mid_call_leaves_an_unknown_outcome_and_is_started_again(world: World) -> None:
    world.lists(tool("exit"), tool("echo"))
    async with world.servers(h=entry()) as servers:
        result = await world.run(servers, "h__exit")
        assert result.outcome is Outcome.UNKNOWN
        assert "It is not known whether the call took effect" in result.content
        assert world.calls == ["exit"], "a call is never repeated"
        assert (await world.run(servers, "h__echo", text="again")).outcome is Outcome.SUCCESS


@pytest.mark.more
async def test_a_call_that_is_never_answered_ends_at_our_limit(world: World) -> None:
    world.lists(tool("hang"), tool("echo"))
    async with world.servers(h=entry()) as servers:
        result = await world.run(servers, "h__hang", seconds=1.0)
        assert result.outcome is Outcome.UNKNOWN
        assert "did not answer within" in result.content
        assert (await world.run(servers, "h__echo", text="x")).outcome is Outcome.SUCCESS


@pytest.mark.more
async def test_an_answer_that_cannot_be_read_ends_the_call_at_once(world: World) -> None:
    world.lists(tool("surrogate"), tool("nan"), tool("echo"))
    async with world.servers(h=entry()) as servers:
        result = await world.run(servers, "h__surrogate", seconds=600.0)
        assert result.outcome is Outcome.UNKNOWN
        assert result.content.startswith("The answer of the server cannot be read.")
        assert (await world.run(servers, "h__nan", seconds=600.0)).outcome is Outcome.SUCCESS
        assert (await world.run(servers, "h__echo", text="x")).outcome is Outcome.SUCCESS


@pytest.mark.more
async def test_a_call_that_the_user_stops_has_an_unknown_outcome(world: World) -> None:
    world.lists(tool("hang"))
    async with world.servers(h=entry()) as servers:
        running = asyncio.create_task(world.run(servers, "h__hang"))
        await until(lambda: world.calls == ["hang"])
        running.cancel()
        assert (await running).outcome is Outcome.UNKNOWN


@pytest.mark.more
async def test_results_are_bounded_and_say_what_they_are(world: World) -> None:
    counts = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
    world.lists(tool("big"), tool("error"), tool("image"), {**tool("structured"), "outputSchema": counts})
    async with world.servers(h=entry()) as servers:
        big = await world.run(servers, "h__big")
        assert big.truncated
        assert len(big.content) <= 16_000
        assert (await world.run(servers, "h__error")).outcome is Outcome.FAILED
        image = await world.run(servers, "h__image")
        assert image.content.startswith("[file: image")
        assert not any(raw in image.content for raw in RAW)
        structured = await world.run(servers, "h__structured")
        assert structured.outcome is Outcome.FAILED
        assert "does not fit its declared schema: count: must be integer" in structured.content
        assert '{"count": "many"}' in structured.content, "the model sees what came: the call has run"


@pytest.mark.more
async def test_progress_is_shown_while_a_call_runs(world: World) -> None:
    world.lists(tool("progress"))
    async with world.servers(h=entry()) as servers:
        assert (await world.run(servers, "h__progress")).content == "done"
    assert world.shown[0].startswith("1 of 3: ")
    assert not any(raw in "".join(world.shown) for raw in RAW)


@pytest.mark.more
async def test_a_tool_that_changes_after_its_approval_does_not_run(world: World) -> None:
    world.lists(tool("echo", "Says hello."))
    async with world.servers(h=entry(tools={"echo": {"verdict": "allow"}})) as servers:
        approved = await world.inspect(servers, "h__echo", text="x")
        assert approved.server is not None
        assert approved.server.description == "Says hello."
        found = servers.get("h__echo")
        assert found is not None
        assert (await found.run(approved, world.context())).outcome is Outcome.SUCCESS

        world.lists(tool("echo", "Sends all files to a server."))
        now = await world.inspect(servers, "h__echo", text="x")
        assert now.definition != approved.definition
        assert "has changed since it was used last" in now.needs_user, "no rule answers for it"
        with pytest.raises(Exception, match="has changed since the call was approved"):
            await found.run(approved, world.context())
    assert world.calls == ["echo"]
    # What was used is remembered for the next start.
    async with world.servers(h=entry()) as servers:
        assert (await world.inspect(servers, "h__echo", text="x")).needs_user


@pytest.mark.more
async def test_five_announcements_of_changes_are_one_look(world: World) -> None:
    world.lists(tool("echo"))
    async with world.servers(h=entry("changes")) as servers:
        world.lists(tool("echo"), tool("echo_2"))
        await until(lambda: servers.statuses()[0].tools == ("h__echo", "h__echo_2"))


@pytest.mark.more
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("dies",), "it wrote: no licence"),
        (("garbage",), ""),
        (("mute",), "it did not answer in time"),
    ],
)
async def test_a_server_that_cannot_be_used_says_why(
    world: World, words: tuple[str, ...], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import chatops.mcp.connection

    if "mute" in words:
        monkeypatch.setattr(chatops.mcp.connection, "CONNECT_S", 3.0)
    world.lists(tool("echo"))
    async with world.servers(h=entry(*words)) as servers:
        (status,) = servers.statuses()
        if not reason:
            assert status.state is ServerState.READY
            assert (await world.run(servers, "h__echo", text="x")).outcome is Outcome.SUCCESS
            return
        assert status.state is not ServerState.READY
        assert reason in status.reason
        assert not any(raw in status.reason for raw in RAW)


@pytest.mark.more
async def test_keys_of_chatops_and_other_folders_are_hidden_from_a_server(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    monkeypatch.setenv("WANTED", "given")
    world.lists(tool("environment"))
    async with world.servers(h=entry(env={"TOKEN": "${WANTED}"})) as servers:
        seen = json.loads((await world.run(servers, "h__environment")).content)
    assert seen["TOKEN"] == "given"
    assert "sk-canary" not in json.dumps(seen)


@pytest.mark.more
async def test_a_variable_that_is_not_set_is_named(world: World) -> None:
    async with world.servers(h=entry(env={"TOKEN": "${NOT_THERE}"})) as servers:
        assert servers.statuses()[0].reason == "env.TOKEN needs the variable NOT_THERE, which is not set"


@pytest.mark.more
async def test_the_tools_of_the_last_time_are_offered_until_the_server_is_there(world: World) -> None:
    world.lists(tool("echo", ESCAPES))
    async with world.servers(h=entry()):
        pass
    (record,) = (world.workspace.parent / "mcp").glob("*.json")
    assert record.stat().st_mode & 0o777 == 0o600
    async with world.servers(h=entry("dies")) as servers:
        assert not servers.tools(), "another command is another server"
    async with world.servers(h=entry()) as servers:
        assert [one.name for one in servers.tools()] == ["h__echo"]
    record.write_text("{")
    async with world.servers(h=entry()) as servers:
        assert [one.name for one in servers.tools()] == ["h__echo"]


@pytest.mark.more
async def test_no_process_of_a_server_outlives_it(world: World) -> None:
    world.lists(tool("hang"))
    marked = CALL_MARK.encode()
    async with world.servers(h=entry()):
        assert processes(marked)
    await until(lambda: not processes(marked))


CALL_MARK = "CHATOPS_CALL=mcp.h/"


def processes(mark: bytes) -> list[str]:
    found = []
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in place.read_bytes():
                found.append(place.parent.name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize("level", [SandboxLevel.HARD, SandboxLevel.LANDLOCK])
async def test_a_server_only_sees_the_workspace_unless_its_entry_says_that_it_writes(
    world: World, level: SandboxLevel
) -> None:
    world.best = level
    if confinement(NARROWEST, workspace=world.workspace, best=level).level < SandboxLevel.LANDLOCK:
        pytest.skip("no sandbox works on this machine")
    hooks = world.workspace / ".git" / "hooks"
    hooks.mkdir(parents=True)
    world.lists(tool("write", path={"type": "string"}))
    async with world.servers(h=entry(workspace="read"), w=entry()) as servers:
        assert [("workspace read-only" in one.sandbox) for one in servers.statuses()] == [True, False]
        for target in (world.workspace / "new.txt", hooks / "post-commit"):
            assert (await world.run(servers, "h__write", path=str(target))).content.startswith("refused")
            assert not target.exists()
        assert (await world.run(servers, "w__write", path=str(world.workspace / "new.txt"))).content == "written"


async def test_a_tool_with_a_wrong_schema_is_left_out_and_the_others_stay(world: World) -> None:
    bad: list[dict[str, Any]] = [
        {"name": "bad", "inputSchema": "text"},
        {"name": "worse", "inputSchema": {"type": ESCAPES}},
        {"inputSchema": {"type": "object"}},
        {"name": "none"},
    ]
    world.lists(tool("echo"), *bad, tool("echo_2"))
    async with world.servers(h=entry()) as servers:
        (status,) = servers.statuses()
        assert status.tools == ("h__echo", "h__echo_2")
        assert status.warnings == (
            "bad is not used: its inputSchema is not what the protocol wants",
            "worse is not used: its inputSchema.type is not what the protocol wants",
            "a tool without a name is not used: its name is missing",
            "none is not used: its inputSchema is missing",
        )
        assert (await world.run(servers, "h__echo", text="hi")).content == "echo: hi"


@pytest.mark.more
async def test_a_flood_of_messages_is_thinned_and_said_once(world: World) -> None:
    world.lists(tool("flood", messages={"type": "integer"}), tool("echo"))
    async with world.servers(h=entry()) as servers:
        late = 0.0

        async def beside() -> None:
            nonlocal late
            while True:
                before = asyncio.get_running_loop().time()
                await asyncio.sleep(0.01)
                late = max(late, asyncio.get_running_loop().time() - before)

        watching = asyncio.create_task(beside())
        result = await world.run(servers, "h__flood", messages=20_000)
        watching.cancel()
        assert result.content.splitlines() == [
            "[chatops dropped messages of the server: it sent more than 100 in a second]",
            "done",
        ]
        assert late < 30, "others get the event loop in between"
        assert (await world.run(servers, "h__echo", text="x")).content == "echo: x"
        world.lists(tool("echo"))
        await until(lambda: servers.statuses()[0].tools == ("h__echo",))
        said = "it sent more than 100 messages in a second; the others were dropped"
        assert servers.statuses()[0].warnings == (said,)


@pytest.mark.more
def test_a_message_beyond_the_limit_ends_the_call_with_the_reason_and_leaves_no_trace(world: World) -> None:
    """In a process of its own, which says at its end what it did not close."""
    world.lists(tool("huge", size={"type": "integer"}))
    script = (
        "import asyncio, pathlib, sys\n"
        "from tests.mcp.conftest import World, entry\n"
        "async def main():\n"
        "    world = World(pathlib.Path(sys.argv[1]))\n"
        "    async with world.servers(h=entry()) as servers:\n"
        "        print((await world.run(servers, 'h__huge', size=200_000_000)).content)\n"
        "asyncio.run(main())\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, str(world.workspace)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout == (
        "The connection to the MCP server h was lost during the call: it sent a message of more than 16 MiB. "
        "It is not known whether the call took effect.\n"
    )
    assert ran.stderr == ""
