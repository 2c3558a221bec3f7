"""``chatops workflow``: start, resume or cancel a run. The listings are in `workflow_show`."""

import sys
from argparse import Namespace
from dataclasses import replace

from chatops.commands.ask import read_prompt
from chatops.commands.context import Storage, app, check_role, find_session, screen, with_app
from chatops.commands.workflow_show import listing, schema, show
from chatops.commands.workspace import WAY_OUT, whole
from chatops.domain.errors import ChatopsError, ConfigError, SessionHeldError
from chatops.engine.workflow.inputs import Accept, CancelRun, Review, ReviewStep, Skip, Stop, TryAgain
from chatops.headless.formats import OutputFormat
from chatops.headless.run import OnApproval
from chatops.headless.screen import Screen
from chatops.headless.workflow import drive, reviewed
from chatops.policy.workflow import StepSpec, WorkflowSpec
from chatops.runtime.descriptions import told_review
from chatops.wiring import App
from chatops.wiring.workflows import check_here

VIA = "headless"


def run(arguments: Namespace) -> int:
    """Run the chosen action. Exit codes of `run` and `resume`: surface, section 1."""
    match arguments.action:
        case "run":
            return _run(arguments)
        case "resume":
            return with_app(arguments, lambda opened: resume(opened, arguments), via=VIA, session=arguments.id)
        case "cancel":
            return with_app(arguments, lambda opened: _cancel(opened, arguments.id), via=VIA, session=arguments.id)
        case "schema":
            return schema()
        case "show":
            with app(arguments, via=VIA, storage=Storage.READ) as opened:
                return show(opened, arguments)
        case _:
            with app(arguments, via=VIA, storage=Storage.READ) as opened:
                return listing(opened, arguments)


def _run(arguments: Namespace) -> int:
    what = "" if getattr(arguments, "workspace", None) else whole(".")
    if what:
        raise ConfigError(
            f"This folder is {what}, and nobody is there to say that it is meant.", advice=f"{WAY_OUT} (. for this one)"
        )
    view = screen()

    async def work(opened: App) -> int:
        if arguments.role is not None:
            check_role(opened, arguments.role)
        found = opened.workflows().get(arguments.name)
        definition = replace(found, spec=_adjusted(found.spec, arguments))
        checked = check_here(opened, definition, role=arguments.role or opened.loaded.registry.default_role)
        for warning in checked.warnings:
            view.say(warning)
        spec = checked.or_raise().spec
        query = read_prompt(arguments.query or "", sys.stdin, view, usage=f'chatops workflow run {spec.name} "QUERY"')
        return await drive(
            await opened.new_run(spec, query, attended=False),
            screen=view,
            output=OutputFormat(arguments.output_format),
            on_approval=OnApproval(arguments.on_approval),
            summary=_summary(opened, arguments),
        )

    return with_app(arguments, work, via=VIA)


async def resume(opened: App, arguments: Namespace) -> int:
    """Resume a run, with the user's review if the flags give one."""
    view = screen()
    word = review_of(arguments)
    try:
        run = await opened.open_run(find_session(opened.store, _id(arguments)).id, attended=False)
    except SessionHeldError:
        if word is None:
            raise
        return _leave(opened, _id(arguments), word, _about(arguments), view)
    return await drive(
        run,
        screen=view,
        output=OutputFormat(arguments.output_format),
        on_approval=OnApproval(arguments.on_approval),
        summary=_summary(opened, arguments),
        review=word,
        about=_about(arguments),
    )


def _about(arguments: Namespace) -> tuple[int, int] | None:
    about: tuple[int, int] | None = getattr(arguments, "attempt", None)
    return about


def _id(arguments: Namespace) -> str:
    """Return the id: `chatops resume` calls it a session, `chatops workflow resume` an id."""
    named: str = getattr(arguments, "id", None) or arguments.session
    return named


def _summary(opened: App, arguments: Namespace) -> bool:
    return getattr(arguments, "summary", False) or not opened.loaded.registry.respond_with_final


def review_of(arguments: Namespace) -> Review | None:
    """Return the review that the flags give.

    Raises ConfigError for a message without a step to retry, and for an attempt without a review.
    """
    told: str | None = getattr(arguments, "tell", None)
    word: str | None = getattr(arguments, "word", None)
    if word is None and _about(arguments) is not None:
        raise ConfigError("--attempt goes with --accept, --retry, --skip or --stop.")
    if told is not None and word != "retry":
        raise ConfigError("--tell goes with --retry.", advice="chatops workflow resume ID --retry --tell TEXT")
    match word:
        case "accept":
            return Accept()
        case "retry":
            return TryAgain(told=told or "")
        case "skip":
            return Skip()
        case "stop":
            return Stop()
        case _:
            return None


def _leave(opened: App, name: str, word: Review, about: tuple[int, int] | None, view: Screen) -> int:
    """Post the review for the process that owns the run."""
    info = find_session(opened.store, name)
    wanted = reviewed(opened.store.load_run(info.id), about)
    said = ReviewStep(step=wanted.step, attempt=wanted.attempt, review=word, by=opened.principal)
    if not opened.store.post_word(info.id, said):
        left = (word for word in opened.store.posted_words(info.id) if isinstance(word, ReviewStep))
        first = next((f": it was {told_review(word)}" for word in left), "")
        raise ChatopsError(f"Somebody else was first to review run {info.id}{first}.")
    view.say("The run is open in another chatops: it takes the review there.")
    return 0


async def _cancel(opened: App, name: str) -> int:
    view = screen()
    info = find_session(opened.store, name)
    try:
        run = await opened.open_run(info.id, attended=False)
    except SessionHeldError:
        if not opened.store.post_word(info.id, CancelRun(by=opened.principal)):
            view.say(f"Run {info.id} is over, or being ended, already.")
            return 1
        view.say("The run is open in another chatops: it ends it there.")
        return 0
    if not await run.cancel():
        await run.go_on()
        await run.settle()
        view.say(f"Run {info.id} is over already.")
        return 1
    await run.settle()
    view.say(f"Run {info.id} is cancelled. What was done so far: chatops workflow show {info.id}")
    return 0


def _adjusted(spec: WorkflowSpec, arguments: Namespace) -> WorkflowSpec:
    """Return the workflow with the budgets that the user gives all steps of this run."""

    def adjusted(step: StepSpec) -> StepSpec:
        return replace(
            step,
            max_iterations=arguments.max_iterations or step.max_iterations,
            max_attempts=arguments.max_retries or step.max_attempts,
        )

    return replace(spec, steps=tuple(adjusted(step) for step in spec.steps))
