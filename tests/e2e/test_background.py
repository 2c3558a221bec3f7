"""A turn is handed over to the background, jobs are opened and decided, and the next start names them."""

import re
import threading

import pytest

from tests.e2e.installation import EFFECT, Installation, registry
from tests.support.fake_openai import Completion, FakeOpenAI, SeenRequest, Wait, call, calls, says

DONE = "All of it is done."


@pytest.mark.more
def test_a_running_turn_is_handed_over_and_decided_from_the_window_that_follows_it(installation: Installation) -> None:
    goes_on, ends = threading.Event(), threading.Event()

    def reply(request: SeenRequest) -> Completion:
        if request.last_user.endswith("thanks"):
            return says("You are welcome.")
        if request.tool_results:
            return says(DONE, wait=Wait(event=ends))
        return calls(call("shell_exec", command=EFFECT), text="I will do that. ", wait=Wait(event=goes_on))

    with installation.chat(reply) as (server, terminal):
        terminal.say("write it down")
        terminal.wait_for("I will do that.")
        terminal.say("/background")
        terminal.wait_for("Handing over if the reply calls a tool; a reply without calls ends the turn here.")
        terminal.wait_for("handing over if the reply calls a tool")
        terminal.say("/jobs")
        terminal.wait_for("running")
        terminal.press("escape")
        terminal.wait_gone("type to filter")
        goes_on.set()
        terminal.wait_for("1 approval pending")
        terminal.wait_for("no process runs it now. F2 opens it here")
        assert "Handing over" not in terminal.text() and "/takeover" not in terminal.text()
        terminal.press("ctrl+g")
        terminal.decide("a")
        terminal.wait_for("the model replies in the background; its text comes at the end")
        ends.set()
        terminal.wait_for(DONE)
        terminal.wait_for("The turn in the background is over. F2 or your next message opens the session here.")
        terminal.say("thanks")
        terminal.wait_for("You are welcome.")
    assert len(server.requests) == 3
    assert installation.count == 1


def test_f2_says_what_has_to_end_before_the_session_is_handed_over(installation: Installation) -> None:
    replied = threading.Event()
    waits = call("shell_exec", command="until test -e go; do sleep 0.05; done")
    with FakeOpenAI([calls(waits, wait=Wait(event=replied)), says(DONE)]) as server:
        installation.use(registry(server.url))
        job = installation.run("--role", "coder", "-p", "wait", "--background").out.strip()
        with installation.open("-r", job) as first, installation.open("-r", job) as second:
            first.wait_for("In the background")
            second.wait_for("In the background")
            first.press("f2")
            first.wait_for("hands over when the model has replied. F2 takes over now, and the model is asked again.")
            replied.set()
            first.decide("a")
            second.wait_for(re.compile(r"0\.05; done +running"))
            second.press("f2")
            second.wait_for("hands over when its tool has ended. F2 takes over now; the outcome is then unknown.")
            (installation.workspace / "go").touch()
            second.wait_for(DONE)
    assert server.violations == []
    assert len(server.requests) == 2


def test_esc_during_the_handover_stops_the_turn(installation: Installation) -> None:
    with installation.chat(lambda _: says("Never.", wait=Wait(event=threading.Event()))) as (_, terminal):
        terminal.say("write it down")
        terminal.wait_for("Esc")
        terminal.say("/background")
        terminal.wait_for("a reply without calls ends the turn here.")
        terminal.wait_for(
            re.compile(r"handing over if the reply calls a tool .*working \d+ s · \d+ tokens?, Esc stops", re.DOTALL)
        )
        terminal.press("escape")
        terminal.wait_for("The turn has ended here, so nothing was handed over.")
        terminal.say("/jobs")
        terminal.wait_for("cancelled")


def test_the_next_start_names_a_job_and_one_that_is_left_goes_on(installation: Installation) -> None:
    goes_on = threading.Event()

    def reply(request: SeenRequest) -> Completion:
        if request.tool_results:
            return says(DONE, wait=Wait(event=goes_on))
        return calls(call("shell_exec", command=EFFECT))

    with FakeOpenAI(reply) as server:
        installation.use(registry(server.url))
        job = installation.run("--role", "coder", "-p", "write it down", "--background").out.strip()
        assert installation.run("jobs", "wait", job).code == 3
        with installation.open("--role", "coder") as terminal:
            terminal.wait_for("Unfinished: waiting for your approval")
            terminal.say("/jobs")
            terminal.wait_for("type to filter")
            terminal.press("enter")
            terminal.decide("a")
            terminal.wait_for(DONE)
            terminal.say("/quit")
            terminal.wait_exit()
            terminal.wait_for(f"The job is running: chatops jobs show {job}")
            goes_on.set()
            # The end of the terminal kills all that it has started.
            assert installation.run("jobs", "wait", job).code == 0
        assert server.violations == []
    assert installation.count == 1


def test_leaving_during_the_handover_stops_no_tool_without_a_word_and_says_what_continues(
    installation: Installation,
) -> None:
    with installation.chat([calls(call("shell_exec", command="sleep 600"))]) as (_, terminal):
        terminal.say("wait")
        terminal.decide("a")
        terminal.say("/background")
        terminal.wait_for("Handing over when the current step is done. Until then Esc stops the turn.")
        terminal.say("/background")
        terminal.press("ctrl+q")
        terminal.wait_for("A tool runs here. ctrl+q again stops it and quits; the job may ask you what it did.")
        terminal.press("ctrl+q")
        terminal.wait_exit()
        terminal.wait_for("Interrupted while running shell_exec (sleep 600): outcome unknown.")
        job = installation.session().id
        terminal.wait_for(f"The job is waiting: chatops jobs show {job}")
        assert installation.run("jobs", "wait", job).code == 3
