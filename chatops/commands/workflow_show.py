"""Output of ``chatops workflow``: definitions, runs, the schema of a definition."""

from argparse import Namespace

from chatops.commands.context import find_session, screen
from chatops.commands.table import table, when
from chatops.domain.canonical import JsonValue
from chatops.domain.errors import ConfigError, NoSuchSessionError
from chatops.engine.workflow.state import WorkflowState
from chatops.headless.json_values import plain
from chatops.headless.pending import next_steps
from chatops.headless.report import RunReport, as_json, run_report
from chatops.headless.workflow import review_steps
from chatops.policy.workflow import CommandGate, PassesWhen, StepSpec, Validation, WorkflowSpec
from chatops.policy.workflow_definition import Definition
from chatops.runtime.workflow import turns_of
from chatops.store.base import SessionInfo
from chatops.wiring import App
from chatops.wiring.workflows import check_here


def schema() -> int:
    """Print the JSON Schema of a workflow in a file of its own."""
    from chatops.config.workflow_read import workflow_schema  # loads pydantic

    value: JsonValue = workflow_schema()  # type: ignore[assignment]  # a JSON Schema is JSON
    screen().json(value)
    return 0


def listing(opened: App, arguments: Namespace) -> int:
    """Print the workflows that can be run, and the runs of this folder."""
    view = screen()
    known = opened.workflows()
    runs = opened.store.runs(workspace=None if arguments.all else str(opened.workspace))
    if arguments.output_format == "json":
        view.json(
            {
                "workflows": [_definition_json(one.spec) for one in known.found],
                "unusable": [{"name": one.name, "error": str(one.error)} for one in known.unusable],
                "runs": [plain(one) for one in runs],
            }
        )
        return 0
    for notice in known.notices:
        view.say(notice)
    if known.found:
        rows = [
            (one.name, ", ".join(step.name for step in one.spec.steps), one.spec.description or one.spec.source)
            for one in known.found
        ]
        view.answer(table(("WORKFLOW", "STEPS", "ABOUT"), rows))
    else:
        view.say("No workflows here. One is defined under workflows in the registry, or as a file beside it.")
    for broken in known.unusable:
        view.say(f"{broken.name} cannot be used: {broken.error}")
    if runs:
        listed = [(one.id, when(one.updated_at), standing(one), one.title) for one in runs]
        view.answer("\n" + table(("RUN", "CHANGED", "STATE", "TITLE"), listed))
    return 0


def standing(info: SessionInfo) -> str:
    """Return the state of a run in a few words."""
    if info.run is None:
        return ""
    if info.run.result:
        return info.run.result
    if info.pending:
        return f"{info.run.step}: {info.pending} to approve"
    return f"{info.run.step}: {'to review' if info.run.phase == 'awaiting_review' else 'not finished'}"


def show(opened: App, arguments: Namespace) -> int:
    """Print a workflow by name, else a run by id. Raises ConfigError if it is neither."""
    known = opened.workflows()
    named = {one.name for one in known.found} | {one.name for one in known.unusable}
    if arguments.name in named:
        return _show_definition(opened, known.get(arguments.name), arguments)
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
        value = {
            **_definition_json(definition.spec),
            "errors": list(checked.errors),
            "warnings": list(checked.warnings),
        }
        view.json(value)
        return 0
    view.answer(_definition_text(definition.spec))
    for problem in (*checked.errors, *checked.warnings):
        view.say(problem)
    return 0


def _definition_json(spec: WorkflowSpec) -> dict[str, JsonValue]:
    value = plain(spec)
    return dict(value) if isinstance(value, dict) else {}


def _definition_text(spec: WorkflowSpec) -> str:
    lines = [f"{spec.name}, from {spec.source}", *([spec.description] if spec.description else [])]
    for number, step in enumerate(spec.steps, start=1):
        lines += ["", f"{number}. {step.name}"]
        lines += [f"   {label + ':':<13}{text}" for label, text in _described(step) if text]
    return "\n".join(lines)


def _described(step: StepSpec) -> list[tuple[str, str]]:
    gates = [f"{one.name} ({one.command if isinstance(one, CommandGate) else one.pattern})" for one in step.gates]
    return [
        ("role", step.role or "that of the run"),
        ("model", step.model),
        ("tools", "all of the role" if step.tools is None else ", ".join(step.tools) or "none"),
        ("has to pass", ", ".join(_passes(one) for one in step.validations)),
        ("gates", ", ".join(gates)),
        ("order", " → ".join(step.order)),
        ("once", ", ".join(step.once)),
        ("schema", "yes" if step.output_schema else ""),
        ("budget", f"{step.max_iterations} iterations, {step.max_attempts} attempts"),
        ("on failure", step.on_fail.value + (", may be skipped" if step.may_skip else "")),
        ("review", "a person accepts the answer" if step.review else ""),
    ]


def _passes(validation: Validation) -> str:
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
        view.say(next_steps(run.session_id, result.pending, resume="workflow resume"))
    elif not (info.run and info.run.result):
        view.say(f"Go on with: chatops workflow resume {run.session_id}")
    view.say(f"All that was said: chatops sessions show {run.session_id}")
    return 0


def _run_text(result: RunReport) -> str:
    head = f"Run {result.session_id} of workflow {result.workflow}: {result.status}"
    rows = [
        (str(number), one.name, one.status, str(one.attempts), str(one.iterations), one.output or one.detail)
        for number, one in enumerate(result.steps, start=1)
    ]
    lines = [head, f"Asked for: {' '.join(result.query.split())}", *([result.detail] if result.detail else []), ""]
    return "\n".join([*lines, table(("", "STEP", "STATE", "ATTEMPTS", "ITERATIONS", "RESULT"), rows)])
