"""Run a function in an isolated subprocess with a limit on CPU time.

It is meant for work that may never end, such as regular expressions: their author rarely sees the text that makes one
take years, a model that knows the pattern may write that text, and a running match in this process cannot be
interrupted. Arguments and result are passed as JSON. The child limits its own CPU time, so it ends even if this process
dies first.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

from chatops.config.paths import PACKAGE
from chatops.domain.canonical import JsonValue
from chatops.sandbox.process import clean_environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a child."""

    cpu_s: int = 5
    """CPU time in whole seconds; other load on this machine does not count."""
    wait_s: float = 60.0
    """Wall-clock seconds after which the child is killed in any case."""
    memory: int = 0
    """Bytes of address space; 0: no limit."""


_KEPT = ("LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONUTF8")
"""Further environment variables that the interpreter may need to start."""
_PROGRAM = """
import importlib, json, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[3]), int(sys.argv[3])))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
if int(sys.argv[4]):
    resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[4]), int(sys.argv[4])))
function = getattr(importlib.import_module(sys.argv[1]), sys.argv[2])
json.dump(function(**json.load(sys.stdin)), sys.stdout)
"""


class IsolatedCallError(Exception):
    """The function was stopped or failed; the text says which, as a clause."""


def run_isolated(function: Callable[..., JsonValue], *, limits: Limits = Limits(), **arguments: JsonValue) -> JsonValue:
    """Call `function`, defined at the top level of a module, in a subprocess and return its result. Blocks.

    Raises IsolatedCallError.
    """
    # -P: do not import modules from the current folder.
    argv = [sys.executable, "-P", "-c", _PROGRAM, function.__module__, function.__qualname__]
    argv += [str(limits.cpu_s), str(limits.memory)]
    path = [str(PACKAGE.parent), *(entry for entry in sys.path if os.path.isabs(entry))]
    # The child may parse untrusted pages, so its environment holds no keys.
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    environment = {**clean_environment(os.environ), **kept, "PYTHONPATH": os.pathsep.join(dict.fromkeys(path))}
    try:
        done = subprocess.run(
            argv,
            input=json.dumps(arguments).encode(),
            capture_output=True,
            env=environment,
            timeout=limits.wait_s,
            # Ctrl+C in the terminal is handled by this process, not by the child.
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise IsolatedCallError("it took too long") from None
    except OSError as error:
        raise IsolatedCallError(f"its process could not be started ({error.strerror})") from error
    if done.returncode < 0:
        raise IsolatedCallError("it took too long")
    try:
        value: JsonValue = json.loads(done.stdout)
    except ValueError:
        raise IsolatedCallError("it failed") from None
    return value
