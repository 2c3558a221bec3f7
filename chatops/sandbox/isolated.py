"""Run a function in a Python process of its own, with a limit on its CPU time.

Meant for work that may never end, such as regular expressions. Their author rarely sees the text that makes one take
years, and a model that knows the pattern may write that text. A match that runs in this process cannot be interrupted.
The child limits its own CPU time, so it ends even if this process dies first.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict

from chatops.config.paths import PACKAGE
from chatops.domain.canonical import JsonValue
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.sandbox.process import clean_environment
from chatops.toolkit.counting import Counter, counts_from

_INTERPRETER_VARIABLES = ("LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONUTF8")
"""Further environment variables that the interpreter may need to start."""
_CHILD_SCRIPT = """
import dataclasses, importlib, json, resource, sys
module, name = sys.argv[1:3]
cpu_s, memory = map(int, sys.argv[3:5])
resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
if memory:
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
if progress_fd := sys.argv[5]:
    importlib.import_module("chatops.toolkit.counting").count_into(int(progress_fd))
function = getattr(importlib.import_module(module), name)
json.dump(function(**json.load(sys.stdin)), sys.stdout, default=dataclasses.asdict)
"""


@frozen_dataclass
class Limits:
    """Limits of the child of `run_isolated`."""

    cpu_s: int = 5
    """CPU time in whole seconds; other load on this machine does not count."""
    wait_s: float = 60.0
    """Wall-clock seconds after which the child is killed in any case."""
    memory: int = 0
    """Bytes of address space; 0: no limit."""


class IsolatedCallError(Exception):
    """The function was stopped or failed; the text says which, as a clause."""


def run_isolated(
    function: Callable[..., object], *, limits: Limits = Limits(), counter: Counter | None = None, **arguments: object
) -> JsonValue:
    """Call `function`, defined at the top level of a module, in a subprocess and return its result. Blocks.

    Arguments and result pass as JSON, dataclasses in them as objects. `counter` counts what the function counts. Raises
    IsolatedCallError.
    """
    writer: int | None = None
    if counter is not None:
        reader, writer = os.pipe()
        threading.Thread(target=_count_progress, args=(reader, counter), name="progress", daemon=True).start()
    # -P: do not import modules from the current folder.
    argv = [sys.executable, "-P", "-c", _CHILD_SCRIPT, function.__module__, function.__qualname__]
    argv += [str(limits.cpu_s), str(limits.memory), "" if writer is None else str(writer)]
    path = [str(PACKAGE.parent), *(entry for entry in sys.path if os.path.isabs(entry))]
    # The child may parse untrusted pages, so its environment holds no keys.
    kept = {name: os.environ[name] for name in _INTERPRETER_VARIABLES if name in os.environ}
    environment = {**clean_environment(os.environ), **kept, "PYTHONPATH": os.pathsep.join(dict.fromkeys(path))}
    try:
        ended = subprocess.run(
            argv,
            input=json.dumps(arguments, default=asdict).encode(),
            capture_output=True,
            env=environment,
            timeout=limits.wait_s,
            pass_fds=() if writer is None else (writer,),
            # Ctrl+C in the terminal is handled by this process, not by the child.
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise IsolatedCallError("it took too long") from None
    except OSError as error:
        raise IsolatedCallError(f"its process could not be started ({error.strerror})") from error
    finally:
        if writer is not None:
            os.close(writer)
    # The kernel ends a child that has reached its limit on CPU time with a signal.
    if ended.returncode < 0:
        raise IsolatedCallError("it took too long")
    try:
        result: JsonValue = json.loads(ended.stdout)
    except ValueError:
        raise IsolatedCallError("it failed") from None
    return result


def _count_progress(reader: int, counter: Counter) -> None:
    # Counting ends with the child. A fault only makes the shown count smaller.
    with open(reader, "rb", buffering=0), suppress(OSError):
        counts_from(reader, counter)
