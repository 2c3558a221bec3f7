"""``chatops doctor``: checks of the installation, each with the next step."""

from argparse import Namespace

from chatops.commands.application import with_app
from chatops.commands.context import confirm
from chatops.domain.canonical import JsonValue
from chatops.domain.errors import ChatopsError, ConfigError
from chatops.domain.wording import money, plural
from chatops.headless.json_values import plain
from chatops.headless.screen import at_words, screen
from chatops.wiring.app import App
from chatops.wiring.doctor import Check, Grade, has_failed, report_lines, run_checks
from chatops.wiring.stored import Storage
from chatops.wiring.tasks import MAX_TASK_ROUNDS, TASKS, Plan, TaskResult, plan, play


def run(arguments: Namespace) -> int:
    """Run the checks. Exit code 0 if none fails, else 1. An unreadable configuration is one of the checks.

    The store is only read: a damaged one is not moved, an old one not migrated, a missing one not created. Only how the
    model of `--model` calls tools is stored in it.
    """
    if arguments.tasks:
        return _play_tasks(arguments)
    # The model is one to check, not one for the role: `options` must not take it for that.
    model, arguments.model = arguments.model, None
    storage = Storage.READ if model is None else Storage.WANTED

    async def work(opened: App) -> int:
        return _print_checks(await run_checks(opened, model=model, connect=True), arguments.output_format)

    try:
        return with_app(arguments, work, broken_ok=True, storage=storage)
    except ChatopsError as error:
        check = Check(name="configuration", grade=Grade.FAIL, text=str(error), advice=error.advice)
        return _print_checks([check], arguments.output_format)


def _play_tasks(arguments: Namespace) -> int:
    """Let a model do the tasks, after a yes. Exit code 0 if all were played, whatever the score."""
    name, arguments.model = arguments.model, None
    if not name:
        raise ConfigError("Which model? --tasks needs --model NAME.", advice="chatops models list shows them.")

    async def work(opened: App) -> int:
        planned = await plan(opened, name)
        view = screen()
        if planned.left_out:
            view.say(f"{planned.left_out} Only the tasks that read are played.")
        view.say(_describe_costs(planned))
        if not arguments.yes and not confirm("Type yes to start."):
            view.say("Nothing was sent. Where no one can be asked: --yes")
            return 2
        results: list[TaskResult] = []

        def show(played: TaskResult) -> None:
            results.append(played)
            view.say(_result_line(played))

        score = await play(opened, planned, played=show)
        if arguments.output_format == "json":
            view.json({"model": name, "done": score.done, "of": score.of, "tasks": [_json(task) for task in results]})
        else:
            rest = f" The {len(TASKS) - score.of} others need what is missing here." if planned.left_out else ""
            view.answer(f"{name}: {score.done} of {score.of} tasks done.{rest}")
        return 0

    return with_app(arguments, work, storage=Storage.WANTED)


def _describe_costs(planned: Plan) -> str:
    """Return what the tasks will take, as sentences."""
    count = len(planned.tasks)
    usual = f"about {planned.requests} requests (at most {MAX_TASK_ROUNDS * count})"
    sizes = f"{planned.input_tokens:,} tokens in and {planned.output_tokens:,} out"
    cost = "its price is unknown" if planned.cost is None else f"about {money(planned.cost, cents_from=0.01)}"
    return (
        f"{planned.spec.name} does {count} tasks in a scratch folder: {usual}, about {sizes}; {cost}. "
        "It takes a minute or two with a fast server, and up to an hour with a slow one."
    )


def _result_line(played: TaskResult) -> str:
    sign = "done" if played.done else "not done"
    errors = f", {plural(played.errors, 'error')} fed back" if played.errors else ""
    return f"{sign:8}  {played.task.name:40} {plural(played.rounds, 'round')}{errors}, {played.seconds:.1f} s"


def _json(played: TaskResult) -> JsonValue:
    return {
        "name": played.task.name,
        "done": played.done,
        "rounds": played.rounds,
        "errors": played.errors,
        "seconds": round(played.seconds, 1),
    }


def _print_checks(checks: list[Check], output: str) -> int:
    view = screen()
    if output == "json":
        view.json([plain(check) for check in checks])
    else:
        view.answer(at_words(report_lines(checks), view.out))
    return 1 if has_failed(checks) else 0
