"""``chatops workflow`` and ``chatops resume``: list, show, start, resume and cancel runs; resume a turn."""

import json
import sys
from argparse import Namespace
from dataclasses import replace

from chatops.commands.application import open_app, print_use_notices, with_app
from chatops.commands.ask import check_folder, read_prompt
from chatops.commands.context import find_session, options
from chatops.commands.worker import queue_prompt
from chatops.config.workflow_read import workflow_schema
from chatops.domain.errors import ChatopsError, ConfigError, NoSuchSessionError, SessionHeldError
from chatops.engine.workflow.inputs import Accept, CancelRun, Review, ReviewStep, Skip, StopRun, TryAgain
from chatops.engine.workflow.state import WorkflowState
from chatops.headless.formats import OutputFormat
from chatops.headless.json_values import fields_json, plain
from chatops.headless.pending import next_steps
from chatops.headless.report import RunReport, as_json, run_report
from chatops.headless.run import OnApproval, resume_turn, show_end
from chatops.headless.run_workflow import drive_run, review_steps, review_target
from chatops.headless.screen import Screen, screen, table, when
from chatops.policy.workflow import CommandGate, Definition, PassesWhen, StepSpec, Validation, WorkflowSpec
from chatops.runtime.descriptions import describe_review, stored_way_to_continue
from chatops.runtime.workflow import turns_of
from chatops.store.base import SessionInfo
from chatops.wiring.app import App
from chatops.wiring.checks import at_step, check_here, check_to_run
from chatops.wiring.rows import run_state
from chatops.wiring.stored import Storage, open_store


def run(arguments: Namespace) -> int:
    """Run the chosen action. Exit codes of `run` and `resume`: see `chatops --help`."""
    match arguments.action:
        case "run":
            return _run(arguments)
        case "resume":
            return with_app(arguments, lambda opened: _resume_run(opened, arguments), session=_run_to_open(arguments))
        case "cancel":
            return with_app(arguments, lambda opened: _cancel(opened, arguments.id), session=_run_to_open(arguments))
        case "schema":
            screen().line(json.dumps(workflow_schema(), indent=2))
            return 0
        case "show":
            with open_app(arguments, storage=Storage.READ) as opened:
                return _show(opened, arguments)
        case _:
            with open_app(arguments, storage=Storage.READ) as opened:
                return _list(opened, arguments)


def _run_to_open(arguments: Namespace) -> str:
    """Return the run whose workspace is opened; empty for a run of the queue, whose workspace only workers have."""
    with open_store(Storage.READ, registry=options(arguments).registry) as store:
        return "" if find_session(store, arguments.id).queue else arguments.id


def _run(arguments: Namespace) -> int:
    view = screen()
    if arguments.queue is not None:
        usage = f'chatops workflow run {arguments.name} "QUERY" --queue {arguments.queue}'
        query = read_prompt(arguments.query or "", sys.stdin, view, usage=usage)
        return queue_prompt(arguments, query, workflow=arguments.name)
    check_folder(getattr(arguments, "workspace", None))

    async def work(opened: App) -> int:
        stored = opened.workflows().get(arguments.name)
        definition = replace(stored, spec=_with_step_limits(stored.spec, arguments))
        role = arguments.role or opened.loaded.registry.default_role
        checked = await check_to_run(opened, definition, role=role)
        for warning in checked.warnings:
            view.say(warning)
        spec = checked.or_raise().spec
        # The first step of each role.
        for step in {step.role: step for step in reversed(spec.steps)}.values():
            print_use_notices(opened, opened.rights.grant(at_step(spec, step, role=role)))
        query = read_prompt(arguments.query or "", sys.stdin, view, usage=f'chatops workflow run {spec.name} "QUERY"')
        return await drive_run(
            await opened.new_run(spec, query, attended=False),
            screen=view,
            output=OutputFormat(arguments.output_format),
            on_approval=OnApproval(arguments.on_approval),
            summary=_is_summary_wanted(opened, arguments),
        )

    return with_app(arguments, work)


async def _resume_run(opened: App, arguments: Namespace) -> int:
    view = screen()
    review, chosen = _review_from(arguments), _chosen_attempt(arguments)
    # `chatops resume` calls it a session.
    info = find_session(opened.store, getattr(arguments, "id", None) or arguments.session)
    if info.queue and review is not None:
        return _post_review(opened, info, review, chosen, view)
    try:
        run = await opened.open_run(info.id, attended=False)
    except SessionHeldError:
        if review is None:
            raise
        return _post_review(opened, info, review, chosen, view)
    return await drive_run(
        run,
        screen=view,
        output=OutputFormat(arguments.output_format),
        on_approval=OnApproval(arguments.on_approval),
        summary=_is_summary_wanted(opened, arguments),
        review=review,
        chosen=chosen,
    )


def _chosen_attempt(arguments: Namespace) -> tuple[int, int] | None:
    """Return the step and attempt that ``--attempt`` names, both counted from 1; None for whatever is under review."""
    chosen: tuple[int, int] | None = getattr(arguments, "attempt", None)
    return chosen


def _is_summary_wanted(opened: App, arguments: Namespace) -> bool:
    return getattr(arguments, "summary", False) or not opened.loaded.registry.respond_with_final


def _review_from(arguments: Namespace) -> Review | None:
    """Return the review that the flags give.

    Raises ConfigError for a message without a step to retry, and for an attempt without a review.
    """
    # `chatops resume` has none of these flags.
    text: str | None = getattr(arguments, "tell", None)
    word: str | None = getattr(arguments, "word", None)
    if word is None and _chosen_attempt(arguments) is not None:
        raise ConfigError("--attempt goes with --accept, --retry, --skip or --stop.")
    if text is not None and word != "retry":
        raise ConfigError("--tell goes with --retry.", advice="chatops workflow resume ID --retry --tell TEXT")
    match word:
        case "accept":
            return Accept()
        case "retry":
            return TryAgain(told=text or "")
        case "skip":
            return Skip()
        case "stop":
            return StopRun()
        case _:
            return None


def _post_review(opened: App, info: SessionInfo, review: Review, chosen: tuple[int, int] | None, view: Screen) -> int:
    """Post the review for the process that owns the run."""
    target = review_target(opened.store.load_run(info.id), chosen)
    posted = ReviewStep(step=target.step, attempt=target.attempt, review=review, by=opened.principal)
    if not opened.store.post_review(info.id, posted):
        others = (other for other in opened.store.posted_reviews(info.id) if isinstance(other, ReviewStep))
        first = next((f": it was {describe_review(other)}" for other in others), "")
        raise ChatopsError(f"Another process was first to review run {info.id}{first}.")
    view.say(f"{_who_takes(opened, info)} takes the review.")
    return 0


def _who_takes(opened: App, info: SessionInfo) -> str:
    """Return who takes what is posted for a run, as the beginning of a sentence."""
    if info.queue:
        return f"A worker of {info.queue}"
    whose = opened.store.foreign(info.id)
    return f"The chatops of {whose}" if whose else "The run is open in another window, which"


async def _cancel(opened: App, name: str) -> int:
    """End a run, or ask its owner to. Exit code 1 if it has ended already."""
    view = screen()
    info = find_session(opened.store, name)
    try:
        run = None if info.queue else await opened.open_run(info.id, attended=False)
    except SessionHeldError:
        run = None
    if run is None:
        if not opened.store.post_review(info.id, CancelRun(by=opened.principal)):
            view.say(f"Run {info.id} has ended already, or is about to.")
            return 1
        view.say(f"{_who_takes(opened, info)} ends it.")
        return 0
    if not await run.cancel():
        await run.resume()
        await run.settle()
        view.say(f"Run {info.id} is over already.")
        return 1
    await run.settle()
    view.say(f"Run {info.id} is cancelled. To see what was done: chatops workflow show {info.id}")
    return 0


def _with_step_limits(spec: WorkflowSpec, arguments: Namespace) -> WorkflowSpec:
    """Return the workflow with the limits of ``--max-iterations`` and ``--max-retries`` in all its steps."""

    def limited(step: StepSpec) -> StepSpec:
        return replace(
            step,
            max_iterations=arguments.max_iterations or step.max_iterations,
            max_attempts=arguments.max_retries or step.max_attempts,
        )

    return replace(spec, steps=tuple(limited(step) for step in spec.steps))


def _list(opened: App, arguments: Namespace) -> int:
    """Print the workflows that can be run, and the runs of this folder."""
    view = screen()
    workflows = opened.workflows()
    runs = opened.store.runs(workspace=None if arguments.all else str(opened.workspace))
    if arguments.output_format == "json":
        view.json(
            {
                "workflows": [fields_json(definition.spec) for definition in workflows.found],
                "unusable": [{"name": broken.name, "error": str(broken.error)} for broken in workflows.unusable],
                "runs": [plain(run) for run in runs],
            }
        )
        return 0
    for notice in workflows.notices:
        view.say(notice)
    if workflows.found:
        rows = [
            (
                definition.name,
                ", ".join(step.name for step in definition.spec.steps),
                definition.spec.description or definition.spec.source,
            )
            for definition in workflows.found
        ]
        view.answer(table(("WORKFLOW", "STEPS", "ABOUT"), rows))
    else:
        view.say("No workflows here. One is defined under workflows in the registry, or as a file beside it.")
    for broken in workflows.unusable:
        view.say(f"{broken.name} cannot be used: {broken.error}")
    if runs:
        listed = [(run.id, when(run.updated_at), run_state(run), run.title) for run in runs]
        view.answer("\n" + table(("RUN", "CHANGED", "STATE", "TITLE"), listed))
    return 0


def _show(opened: App, arguments: Namespace) -> int:
    """Print a workflow by name, else a run by id. Raises ConfigError if it is neither."""
    workflows = opened.workflows()
    named = {definition.name for definition in workflows.found} | {definition.name for definition in workflows.unusable}
    if arguments.name in named:
        return _show_definition(opened, workflows.get(arguments.name), arguments)
    try:
        info = find_session(opened.store, arguments.name)
    except NoSuchSessionError:
        raise ConfigError(
            f"There is no workflow and no run {arguments.name!r}.", advice="chatops workflow list shows both."
        ) from None
    return _show_run(opened, opened.store.load_run(info.id), info, arguments)


def _show_definition(opened: App, definition: Definition, arguments: Namespace) -> int:
    view = screen()
    checked = check_here(opened, definition, role=opened.loaded.registry.default_role)
    if arguments.output_format == "json":
        problems = {"errors": list(checked.errors), "warnings": list(checked.warnings)}
        view.json({**fields_json(definition.spec), **problems})
        return 0
    view.answer(_definition_text(definition.spec))
    for problem in (*checked.errors, *checked.warnings):
        view.say(problem)
    return 0


def _definition_text(spec: WorkflowSpec) -> str:
    lines = [f"{spec.name}, from {spec.source}", *([spec.description] if spec.description else [])]
    for number, step in enumerate(spec.steps, start=1):
        lines += ["", f"{number}. {step.name}"]
        lines += [f"   {label + ':':<13}{text}" for label, text in _describe_step(step) if text]
    return "\n".join(lines)


def _describe_step(step: StepSpec) -> list[tuple[str, str]]:
    gates = [f"{gate.name} ({gate.command if isinstance(gate, CommandGate) else gate.pattern})" for gate in step.gates]
    return [
        ("role", step.role or "that of the run"),
        ("model", step.model),
        ("tools", "all of the role" if step.tools is None else ", ".join(step.tools) or "none"),
        ("has to pass", ", ".join(_validation_words(validation) for validation in step.validations)),
        ("gates", ", ".join(gates)),
        ("order", " → ".join(step.order)),
        ("once", ", ".join(step.once)),
        ("schema", "yes" if step.output_schema else ""),
        ("budget", f"{step.max_iterations} iterations, {step.max_attempts} attempts"),
        ("on failure", step.on_fail.value + (", may be skipped" if step.may_skip else "")),
        ("review", "you accept the answer" if step.review else ""),
    ]


def _validation_words(validation: Validation) -> str:
    match validation.passes_when:
        case PassesWhen.VALID:
            return validation.tool
        case PassesWhen.SUCCESS:
            return f"{validation.tool} (when it succeeds)"
        case PassesWhen.EXIT_CODE_0:
            return f"{validation.tool} (with exit code 0)"


def _show_run(opened: App, run: WorkflowState, info: SessionInfo, arguments: Namespace) -> int:
    view = screen()
    result = run_report(run, turns_of(opened.store, run), workspace=info.workspace)
    if arguments.output_format == "json":
        view.json(as_json(result))
        return 0
    view.answer(_run_text(result))
    if result.review is not None:
        view.say(review_steps(run))
    elif result.pending:
        view.say(next_steps(result.pending, then=stored_way_to_continue(opened.store, run.session_id)))
    elif not (info.run and info.run.result):
        view.say(f"To continue: {stored_way_to_continue(opened.store, run.session_id)}")
    view.say(f"The whole session: chatops sessions show {run.session_id}")
    return 0


def _run_text(result: RunReport) -> str:
    head = f"Run {result.session_id} of workflow {result.workflow}: {result.status}"
    rows = [
        (str(number), step.name, step.status, str(step.attempt), str(step.requests), step.output or step.detail)
        for number, step in enumerate(result.steps, start=1)
    ]
    lines = [head, f"Asked for: {' '.join(result.query.split())}", *([result.detail] if result.detail else []), ""]
    return "\n".join([*lines, table(("", "STEP", "STATE", "ATTEMPTS", "ITERATIONS", "RESULT"), rows)])


def resume(arguments: Namespace) -> int:
    """Resume a session. Exit code as with -p; 3 again while a call is still pending.

    A workflow run is resumed as with `workflow resume`.
    """

    async def work(app: App) -> int:
        view = screen()
        output = OutputFormat(arguments.output_format)
        info = find_session(app.store, arguments.session)
        if info.unfinished_run is not None:
            return await _resume_run(app, arguments)
        if info.active_turn is None:
            return _show_stored_end(app, info, view, output)
        session = await app.open_session(info.id, attended=False)
        print_use_notices(app, session.grant())
        return await resume_turn(session, screen=view, output=output, on_approval=OnApproval(arguments.on_approval))

    return with_app(arguments, work, session=arguments.session)


def _show_stored_end(app: App, info: SessionInfo, view: Screen, output: OutputFormat) -> int:
    if info.last_turn is None:
        raise ChatopsError(
            f"Session {info.id} has no turn to continue.", advice=f"Send a message: chatops -r {info.id} -p PROMPT"
        )
    state = app.store.load_turn(info.last_turn)
    return show_end(state, workspace=info.workspace, screen=view, output=output)
