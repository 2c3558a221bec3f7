"""``chatops doctor``: checks of the installation, each with the next step."""

from argparse import Namespace

from chatops.commands.context import screen, with_app
from chatops.domain.errors import ChatopsError
from chatops.headless.doctor import Check, Grade, failed, lines
from chatops.headless.json_values import plain
from chatops.wiring.app import App
from chatops.wiring.doctor import look
from chatops.wiring.stored import Storage


def run(arguments: Namespace) -> int:
    """Run the checks. Exit code 0 if none fails, else 1. An unreadable configuration is one of the checks.

    The store is only read: a damaged one is not moved, an old one not migrated, a missing one not created. Only how the
    model of `--model` calls tools is stored in it.
    """
    model = arguments.model
    arguments.model = None
    storage = Storage.READ if model is None else Storage.WANTED

    async def work(opened: App) -> int:
        return _print(await look(opened, model=model, connect=True), arguments.output_format)

    try:
        return with_app(arguments, work, via="headless", broken_ok=True, storage=storage)
    except ChatopsError as error:
        check = Check(name="configuration", grade=Grade.FAIL, text=str(error), advice=error.advice)
        return _print([check], arguments.output_format)


def _print(checks: list[Check], output: str) -> int:
    view = screen()
    if output == "json":
        view.json([plain(check) for check in checks])
    else:
        view.answer(lines(checks))
    return 1 if failed(checks) else 0
