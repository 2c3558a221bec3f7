"""Models of type gemini: Google's OpenAI-compatible endpoint, and the thought signatures that its calls carry.

Wire: https://ai.google.dev/gemini-api/docs/openai and https://ai.google.dev/gemini-api/docs/thought-signatures, as of
November 2026. Gemini 3 answers 400 to a history in which a call lacks its signature.
"""

import json

import pytest

from tests.support.command_line import CommandLine
from tests.support.fake_openai import FakeOpenAI, Raw, Reply, call, calls, delta, says, stream

SIGNED = {"google": {"thought_signature": "AY89a18IwQsQ8in/J2+dk=="}}
UNSIGNED = {"google": {"thought_signature": "skip_thought_signature_validator"}}


def reads_note(**more: object) -> Raw:
    """A streamed call as the endpoint sends it: whole, in one chunk."""
    function = {"name": "file_read", "arguments": '{"path":"note.txt"}'}
    wanted = {"index": 0, "id": "function-call-15", "type": "function", "function": function, **more}
    return stream(delta(role="assistant", tool_calls=[wanted]), delta("", finish="tool_calls"))


@pytest.fixture
def registry(chatops: CommandLine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Flags for a registry that `serve` fills in."""
    monkeypatch.setenv("GEMINI_API_KEY", "AIza-test-key")
    return ["--registry", str(chatops.workspace.parent / "r.json")]


def serve(chatops: CommandLine, server: FakeOpenAI) -> None:
    """Point the models of the registry at `server`: a Gemini model and another server's model."""
    models = {
        "g": {"type": "gemini", "model_name": "gemini-3-flash-preview", "api_url": server.url},
        "other": {"api_url": server.url, "model_name": "other"},
    }
    roles = {"assistant": {"primary": "g", "tools": ["file_read"]}}
    (chatops.workspace.parent / "r.json").write_text(json.dumps({"version": 3, "models": models, "roles": roles}))


def sent_calls(server: FakeOpenAI) -> list[dict[str, object]]:
    """The calls in the history of the last request."""
    return [one for message in server.requests[-1].messages for one in message.get("tool_calls", [])]


def test_a_signature_goes_back_unchanged_and_only_to_the_model_that_gave_it(
    chatops: CommandLine, registry: list[str]
) -> None:
    replies: list[Reply] = [reads_note(extra_content=SIGNED), says("On Friday."), says("Yes."), says("Yes, on Friday.")]
    with FakeOpenAI(replies) as server:
        serve(chatops, server)
        assert chatops(*registry, "-p", "When is it due?").out.strip() == "On Friday."
        (sent,) = sent_calls(server)
        assert sent["extra_content"] == SIGNED
        assert server.requests[-1].headers["authorization"] == "Bearer AIza-test-key"
        chatops(*registry, "-p", "Sure?", "-c", "--model", "other")
        (sent,) = sent_calls(server)
        assert "extra_content" not in sent
        chatops(*registry, "-p", "Sure?", "-c", "--model", "g")
        (sent,) = sent_calls(server)
        assert sent["extra_content"] == SIGNED


def test_calls_of_another_model_are_sent_with_the_value_that_google_documents_for_them(
    chatops: CommandLine, registry: list[str]
) -> None:
    with FakeOpenAI([calls(call("file_read", path="note.txt")), says("On Friday."), says("Yes.")]) as server:
        serve(chatops, server)
        chatops(*registry, "-p", "When is it due?", "--model", "other")
        ran = chatops(*registry, "-p", "Sure?", "-c", "--model", "g")
        assert ran.code == 0, ran.err
        (sent,) = sent_calls(server)
        assert sent["extra_content"] == UNSIGNED


@pytest.mark.parametrize("extra", ["text", [1], {"google": {"thought_signature": "x" * 300_000}}, {}])
def test_what_is_no_small_object_is_not_kept(chatops: CommandLine, registry: list[str], extra: object) -> None:
    with FakeOpenAI([reads_note(extra_content=extra), says("On Friday.")]) as server:
        serve(chatops, server)
        assert chatops(*registry, "-p", "When is it due?").code == 0
        (sent,) = sent_calls(server)
        assert sent["extra_content"] == UNSIGNED


def test_an_error_in_a_list_is_read(chatops: CommandLine, registry: list[str]) -> None:
    body = [{"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT"}}]
    refusal = Raw(steps=(json.dumps(body).encode(),), status=400, content_type="application/json")
    with FakeOpenAI([refusal]) as server:
        serve(chatops, server)
        ran = chatops(*registry, "-p", "hello")
    assert ran.code == 1
    assert "API key not valid." in ran.err


def test_without_api_url_and_key_the_usual_ones_are_meant(
    chatops: CommandLine, registry: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GEMINI_API_KEY")
    models = {"g": {"type": "gemini", "model_name": "gemini-3-flash-preview"}}
    file = chatops.workspace.parent / "r.json"
    file.write_text(json.dumps({"version": 3, "models": models, "roles": {"assistant": {"primary": "g"}}}))
    assert chatops("registry", "check", str(file)).code == 0
    ran = chatops(*registry, "-p", "hello")
    assert ran.code != 0
    assert "GEMINI_API_KEY" in ran.err
