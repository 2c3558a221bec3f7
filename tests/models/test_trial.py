"""The trial of ``chatops doctor --model``: a model is asked for a harmless call, and the result is remembered."""

from chatops.models.memory import InMemoryTextStore
from chatops.models.trial import PING, Trial, TrialOutcome, try_calling
from tests.models.asking import spec_for
from tests.support.fake_openai import FakeOpenAI, Reply, SeenRequest, call, calls, error, says

REFUSED = error(400, "this model does not support tools")
PINGS = calls(call("ping", word="heron"))
PINGS_AS_TEXT = says('<tool_call>\n{"name": "ping", "arguments": {"word": "heron"}}\n</tool_call>')


async def tried(
    *replies: Reply, tool_format: str = "auto", store: InMemoryTextStore | None = None
) -> tuple[Trial, list[SeenRequest]]:
    async with FakeOpenAI(list(replies)) as server:
        spec = spec_for(server, tool_format=tool_format)
        trial = await try_calling(spec, remembered=InMemoryTextStore() if store is None else store)
        return trial, server.requests


async def test_native_calls() -> None:
    trial, (request,) = await tried(PINGS)
    assert trial.outcome is TrialOutcome.NATIVE
    assert request.tool_names == [PING.name]


async def test_calls_as_text_although_the_tool_was_in_its_field() -> None:
    trial, requests = await tried(PINGS_AS_TEXT)
    assert (trial.outcome, trial.format, len(requests)) == (TrialOutcome.TEXT, "hermes", 1)


async def test_a_server_that_takes_no_tools() -> None:
    trial, requests = await tried(REFUSED, PINGS_AS_TEXT)
    assert (trial.outcome, trial.format, len(requests)) == (TrialOutcome.PROMPTED, "hermes", 2)


async def test_a_server_that_hides_tools_from_the_model() -> None:
    trial, requests = await tried(says("I have no tools."), PINGS_AS_TEXT)
    assert (trial.outcome, trial.format) == (TrialOutcome.PROMPTED, "hermes")
    assert ["tools" in request.body for request in requests] == [True, False]


async def test_a_model_that_does_not_call_is_tried_both_ways_and_quoted() -> None:
    trial, requests = await tried(says("I would call ping."), says("Heron!"))
    assert (trial.outcome, trial.answer_text, len(requests)) == (TrialOutcome.NO_CALL, "I would call ping.", 2)


async def test_a_named_format_is_the_only_one_that_is_tried() -> None:
    assert (await tried(PINGS_AS_TEXT, tool_format="hermes"))[0].outcome is TrialOutcome.PROMPTED
    trial, requests = await tried(says("no"), tool_format="hermes")
    assert (trial.outcome, trial.format, len(requests)) == (TrialOutcome.NO_CALL, "hermes", 1)
    assert (await tried(PINGS, tool_format="native"))[0].outcome is TrialOutcome.NATIVE
    assert (await tried(PINGS_AS_TEXT, tool_format="native"))[0].outcome is TrialOutcome.NO_CALL


async def test_a_call_that_cannot_be_run_differs_from_no_call() -> None:
    trial, _ = await tried(says('<tool_call>\n{"name": "ping", "arguments": {"word": "her'), says("no"))
    assert trial.outcome is TrialOutcome.UNREADABLE
    trial, _ = await tried(calls(call("pong", word="heron")), says("no"))
    assert trial.outcome is TrialOutcome.UNREADABLE


async def test_no_reply_takes_nothing_away_from_what_is_known() -> None:
    store = InMemoryTextStore()
    replies: list[Reply] = [REFUSED, PINGS_AS_TEXT, error(401, "no"), says("fine")]
    async with FakeOpenAI(replies) as server:
        spec = spec_for(server)
        await try_calling(spec, remembered=store)
        trial = await try_calling(spec, remembered=store)
        assert trial.outcome is TrialOutcome.FAILED and trial.failure is not None
        assert store.get(f"endpoint:tools:{server.url} fake-model")


async def test_a_finding_that_no_longer_holds_is_forgotten() -> None:
    store = InMemoryTextStore()
    async with FakeOpenAI([REFUSED, PINGS_AS_TEXT, says("no"), says("no")]) as server:
        spec = spec_for(server)
        await try_calling(spec, remembered=store)
        assert (await try_calling(spec, remembered=store)).outcome is TrialOutcome.NO_CALL
        assert not store.get(f"endpoint:tools:{server.url} fake-model")


async def test_a_new_finding_takes_the_place_of_the_old_one() -> None:
    store = InMemoryTextStore()
    async with FakeOpenAI([REFUSED, PINGS_AS_TEXT, PINGS]) as server:
        spec = spec_for(server)
        assert (await try_calling(spec, remembered=store)).outcome is TrialOutcome.PROMPTED
        assert (await try_calling(spec, remembered=store)).outcome is TrialOutcome.NATIVE
        assert "tools" in server.requests[2].body
        assert '"native"' in str(store.get(f"endpoint:tools:{server.url} fake-model"))
