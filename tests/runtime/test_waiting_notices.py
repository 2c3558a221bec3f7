"""Notices while a model does not answer, and their final texts."""

import pytest

from chatops.models.base import Retrying, Waiting
from chatops.models.retry import countdown
from chatops.runtime.model_call import waiting_notice, waiting_over_notice
from tests.support.cases import for_each

RETRYING = Retrying(reason="It is busy.", attempt=2, attempts=3, delay_s=8.0, left_s=3.0)


@for_each(
    ("delay_s", "lefts"), [(0.0, [0.0]), (0.4, [0.4]), (1.0, [1.0]), (1.5, [1.5, 1.0]), (4.0, [4.0, 3.0, 2.0, 1.0])]
)
def test_a_retry_pause_counts_down_by_the_second(delay_s: float, lefts: list[float]) -> None:
    assert countdown(delay_s) == lefts


@pytest.mark.parametrize(
    ("event", "now", "afterwards", "stopped"),
    [
        pytest.param(
            RETRYING,
            "It is busy. Trying again in 3 s (2 of 3).",
            "It is busy. Tried again (2 of 3).",
            "It is busy. It was not tried again.",
            id="retrying",
        ),
        pytest.param(
            Waiting(seconds=15, alive=False, limit_s=120),
            "No data for 15 s. chatops gives up after 2 min.",
            "There was no data for 15 s.",
            "There was no data for 15 s.",
            id="silent",
        ),
        pytest.param(
            Waiting(seconds=15, alive=True, limit_s=60),
            "No data for 15 s, but the server is alive. chatops gives up after 60 s.",
            "There was no data for 15 s.",
            "There was no data for 15 s.",
            id="alive",
        ),
        pytest.param(
            Waiting(seconds=6, alive=False, limit_s=120, loading=True),
            "Loading the model … No data for 6 s. chatops gives up after 2 min.",
            "The server had not loaded the model. There was no data for 6 s.",
            "The server had not loaded the model. There was no data for 6 s.",
            id="loading",
        ),
        pytest.param(
            Waiting(seconds=15, alive=False, limit_s=None),
            "Waiting for 15 s until other requests to this model are over.",
            "Waited for 15 s until other requests to this model were over.",
            "Waited for 15 s until other requests to this model were over.",
            id="in-line",
        ),
    ],
)
def test_waiting_has_a_notice_and_a_final_text(
    event: Retrying | Waiting, now: str, afterwards: str, stopped: str
) -> None:
    assert (waiting_notice(event), waiting_over_notice(event), waiting_over_notice(event, stopped=True)) == (
        now,
        afterwards,
        stopped,
    )


def test_a_failure_after_retries_leaves_the_reason_to_the_error() -> None:
    assert waiting_over_notice(RETRYING, failed=True) == "Tried again (2 of 3)."
