"""What may take without end is computed in a process of its own, which is stopped when it has had its time.

Regular expressions are the case in point: whoever writes one rarely sees the text that makes it try for years, a model
that is told of it does, and nothing in this process can be done meanwhile. The child gets JSON and gives JSON; it holds
itself to its time, so that it ends even where nobody is left to stop it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import chatops
from chatops.domain.canonical import JsonValue
from chatops.tools.process import clean_environment

SECONDS = 5
"""Of the processor, whole ones: what else this machine has to do does not count."""
_WAIT_S = 60.0
"""Until it is stopped in any case."""
_KEPT = ("LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONUTF8")
"""What this interpreter may need to start again."""
_PROGRAM = """
import importlib, json, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[3]), int(sys.argv[3])))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
function = getattr(importlib.import_module(sys.argv[1]), sys.argv[2])
json.dump(function(**json.load(sys.stdin)), sys.stdout)
"""


class NotDone(Exception):
    """It was stopped, or failed; the text says which, as a clause."""


def apart(function: Callable[..., JsonValue], **arguments: JsonValue) -> JsonValue:
    """What `function`, of a module's top level, gives for `arguments`. Blocks. Raises NotDone."""
    # -P: the folder that chatops is started in has no say in what is imported.
    argv = [sys.executable, "-P", "-c", _PROGRAM, function.__module__, function.__qualname__, str(SECONDS)]
    path = [str(Path(chatops.__file__).parent.parent), *(entry for entry in sys.path if os.path.isabs(entry))]
    # Whoever reads a stranger's page needs no keys.
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    environment = {**clean_environment(os.environ), **kept, "PYTHONPATH": os.pathsep.join(dict.fromkeys(path))}
    try:
        done = subprocess.run(
            argv,
            input=json.dumps(arguments).encode(),
            capture_output=True,
            env=environment,
            timeout=_WAIT_S,
            # Ctrl+c in the terminal is for us to answer.
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotDone("it took too long") from None
    except OSError as error:
        raise NotDone(f"no process could be started for it ({error.strerror})") from error
    if done.returncode < 0:
        raise NotDone("it took too long")
    try:
        value: JsonValue = json.loads(done.stdout)
    except ValueError:
        raise NotDone("it failed") from None
    return value
