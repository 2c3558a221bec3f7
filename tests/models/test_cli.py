"""Classification of failures that a program reports."""

import json

import pytest

from chatops.domain.model import FailureKind
from chatops.models.base import EngineError
from chatops.models.cli_output import EventReader
from tests.support.cases import for_each


@for_each(
    ("status", "text", "kind"),
    [
        (400, "The prompt exceeds the context limit", FailureKind.SERVER_ERROR),
        (500, "The login service has failed", FailureKind.SERVER_ERROR),
        (401, "No", FailureKind.UNAUTHORIZED),
        (429, "Slow down", FailureKind.RATE_LIMITED),
        (529, "Busy", FailureKind.RATE_LIMITED),
        (None, "You've hit your usage limit", FailureKind.RATE_LIMITED),
        (None, "Please run /login", FailureKind.UNAUTHORIZED),
    ],
)
def test_the_status_counts_and_words_only_without_one(status: int | None, text: str, kind: FailureKind) -> None:
    line = json.dumps({"type": "result", "is_error": True, "result": text, "api_error_status": status})
    with pytest.raises(EngineError) as failed:
        list(EventReader("claude", login="Log in.").feed(f"{line}\n"))
    assert failed.value.failure.kind is kind
