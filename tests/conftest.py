"""Give every test a home of its own, no keys, no proxies, default signal handling and a patient hypothesis."""

import gc
import itertools
import json
import os
import signal
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from pydantic import BaseModel, create_model
from xdist.scheduler.worksteal import WorkStealingScheduling  # type: ignore[import-untyped]

from chatops.domain import known_keys
from chatops.domain.tools import BUILT_IN_TOOLS
from chatops.startup import settle_collector
from chatops.tools import function
from tests.support import forking
from tests.support.command_line import REPOSITORY
from tests.support.figures import FAULT, FIGURE, Count, Tally, faults_of

# Without stored bytecode each program that a test starts, and each worker, would compile every module again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
forking.install()

# A slow machine is no failure. Under CI the same examples every time; `--hypothesis-profile fuzz` looks further.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, database=None, print_blob=True)
settings.register_profile("fuzz", settings.get_profile("default"), max_examples=5000, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")

_FOREIGN = ("CHATOPS_", "OPENAI_", "GEMINI_", "ANTHROPIC_", "BRAVE_", "TAVILY_", "WOLFRAM_")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_CLIPBOARDS = ("TMUX", "WAYLAND_DISPLAY", "DISPLAY")
_FOR_TESTS = frozenset({"CHATOPS_AIMOCK", "CHATOPS_AXE"})
_NUMBERS = itertools.count()
_IN_MEMORY = Path("/dev/shm")
_ROOM = 2 << 30
"""Bytes that have to be free there: all default tests take 100 MB, and pytest keeps the files of three runs."""


@pytest.fixture(scope="session", autouse=True)
def default_signals() -> None:
    """Let programs that tests start get the default handling of signals, also under `nohup` or as a shell's job.

    Ignored signals are inherited, handlers are not. So a handler that does nothing keeps this process as safe from the
    signal as it was.
    """
    python_ignores = {signal.SIGPIPE, signal.SIGXFSZ}
    for number in signal.valid_signals() - python_ignores:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


@pytest.fixture(scope="session", autouse=True)
def models_once() -> Iterator[None]:
    """Make the model of a built-in tool once, as a program does: they would be a sixth of a command's CPU."""
    made: dict[str, type[BaseModel]] = {}

    def create_once(title: str, **fields: Any) -> Any:
        if title not in BUILT_IN_TOOLS:
            return create_model(title, **fields)
        if (name := f"{title} {fields}") not in made:
            made[name] = model = create_model(title, **fields)
            model.model_json_schema = cache(model.model_json_schema)
        return made[name]

    with patch.object(function, "create_model", create_once):
        yield


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("homes")


@pytest.fixture(autouse=True)
def no_known_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that knows no key yet."""
    monkeypatch.setattr(known_keys, "_known", (frozenset(), ()))


@pytest.fixture(autouse=True)
def chatops_home(homes: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty CHATOPS_HOME, inherited by programs the test starts; the user's own files and keys stay out.

    What a test starts imports this checkout, wherever the tests were started and whatever else is installed.
    """
    for name in list(os.environ):
        if name in (*_PROXIES, *_CLIPBOARDS) or (name.startswith(_FOREIGN) and name not in _FOR_TESTS):
            monkeypatch.delenv(name)
    home = homes / str(next(_NUMBERS))
    home.mkdir()
    monkeypatch.setenv("CHATOPS_HOME", str(home))
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    # Or argparse looks on the disk for a translation of its words, some hundred times per command line.
    monkeypatch.setenv("LANGUAGE", "C")
    return home


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--tally FILE` and `--part K/N`."""
    parser.addoption("--tally", default="", help="write which faults passed and what was counted into this file")
    parser.addoption("--part", default="", metavar="K/N", help="run the K-th of N parts of the selected tests")


def pytest_configure(config: pytest.Config) -> None:
    """Only the process that hears of all tests adds up. It also chooses where temporary files are."""
    if hasattr(config, "workerinput"):
        return
    if file := config.getoption("--tally"):
        config.pluginmanager.register(Tally(Path(file)))
    # What measures is to wait for the disk as a program does.
    if config.getoption("markexpr") != "bench" and not os.environ.get("TMPDIR") and _memory_is_usable():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_IN_MEMORY))


def _memory_is_usable() -> bool:
    """Return whether tests can store and run files in memory, where no commit of SQLite waits for a disk."""
    if not os.access(_IN_MEMORY, os.W_OK):
        return False
    place = os.statvfs(_IN_MEMORY)
    return place.f_bavail * place.f_frsize >= _ROOM and not place.f_flag & os.ST_NOEXEC


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let each report say which faults its test is about, and sort cases beyond `some(n)` into the tier `more`."""
    cases: Counter[str] = Counter()
    for item in items:
        item.user_properties += [(FAULT, fault) for fault in faults_of(item)]
        if (some := item.get_closest_marker("some")) is not None:
            test = item.nodeid.partition("[")[0]
            cases[test] += 1
            if cases[test] > some.args[0]:
                item.add_marker("more")
    if part := config.getoption("part"):
        number, of = map(int, part.split("/"))
        # Chosen by name, so that a test stays in its part when others come and go.
        chosen = {item for item in items if zlib.crc32(item.nodeid.encode()) % of == number % of}
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = [item for item in items if item in chosen]


def pytest_collectstart() -> None:
    """Look for no garbage until all tests are collected: it would be a fifth of the CPU of collecting."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Keep Python from looking through thousands of collected tests each time that it looks for garbage.

    It looks as seldom as in the program, which spares a tenth of the CPU of tests that draw a screen.
    """
    settle_collector()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> WorkStealingScheduling | None:
    """Give each worker whole folders, as far as that goes: what a module or a session keeps open is opened once then,
    and not once in each worker."""
    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Start a process for each core with `-n auto`, and four at least: many tests wait more than they compute."""
    return max(4, len(os.sched_getaffinity(0)))


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Count:
    """Count something that a whole run adds up, see `tests.support.figures`."""

    def count(name: str, *, bad: int, of: int) -> None:
        record_property(FIGURE, json.dumps([name, bad, of]))

    return count
