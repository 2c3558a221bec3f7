"""Print how fast chatops is, as ratios to a floor that is measured in the same run.

    .venv/bin/python -m tests.benchmarks.ratios [--runs N] [--only NAME]… [--history FILE]

The floor is `floor/chat.py`, a Textual app that can do nothing but chat, and `floor/post.py`, a script that asks once.
Programs are run in turns, and each figure is the median. A line is added to a file, by default ``benchmarks.jsonl`` in
the user's cache folder for chatops.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

from tests.benchmarks.program import Program, Server, take_priority

FLOOR = Path(__file__).parent / "floor"
CHATOPS = Path(sys.executable).with_name("chatops")
LENGTHS = (2_000, 10_000)
QUIET_S = 4.0
SMALL, EXCHANGES = 30, 10
FULL_RATE, STREAM_S = 500, 10
KEYS = "zqjxkv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measure: ours, what it is compared with, and the ratio or value to stay below."""

    name: str
    ours: float
    floor: float | None = None
    target: float
    unit: str = "ms"

    @property
    def value(self) -> float:
        """The ratio, or our value where there is nothing to compare it with."""
        return self.ours if self.floor is None else self.ours / self.floor

    def __str__(self) -> str:
        floor = "" if self.floor is None else f"{self.floor:.1f}"
        verdict = "ok" if self.value <= self.target else "MISSED"
        ratio = f"{self.value:.2f}x" if self.floor is not None else ""
        return f"{self.name:46} {self.ours:9.1f} {floor:>9} {self.unit:5} {ratio:>7}  (≤ {self.target:g})  {verdict}"


class Bench:
    """Folders, the server, and the programs to compare."""

    def __init__(self, folder: Path, runs: int) -> None:
        self.folder, self.runs = folder, runs
        self.server = Server(folder)
        self._number = 0

    def environment(self, name: str) -> dict[str, str]:
        home = self.folder / name
        (home / "workspace").mkdir(parents=True, exist_ok=True)
        model = {"type": "openai", "api_url": self.server.url, "model_name": "bench", "api_key_env": "BENCH_KEY"}
        limits = {"max_rounds": 99, "context_window": 100_000_000}
        role = {"primary": "bench", "max_rounds": 99, "tools": ["file_read", "file_search", "file_edit", "shell_exec"]}
        registry = {
            "version": 3,
            "default_role": "assistant",
            "models": {"bench": {**model, **limits}},
            "roles": {"assistant": role},
            "users": {"*": {"access_level": "operator"}},
        }
        self.registry(name).write_text(json.dumps(registry))
        kept = {key: value for key, value in os.environ.items() if key in ("PATH", "PYTHONPATH")}
        own = {"HOME": str(home), "CHATOPS_HOME": str(home / "chatops"), "BENCH_KEY": "none", "TERM": "xterm-256color"}
        return {**kept, **own, "COLORTERM": "truecolor", "LANG": "C.UTF-8", "PYTHONPATH": str(FLOOR.parents[2])}

    def registry(self, name: str) -> Path:
        return self.folder / name / "registry.json"

    def workspace(self, name: str) -> Path:
        return self.folder / name / "workspace"

    def command(self, name: str, *arguments: str) -> list[str]:
        return [str(CHATOPS), "--registry", str(self.registry(name)), *arguments]

    def chat(self, name: str, *arguments: str) -> Program:
        """Start our chat with the home folder `name`, or the floor."""
        env = self.environment(name)
        floor = [sys.executable, "-m", "tests.benchmarks.floor.chat", self.server.url]
        argv = floor if name == "floor" else self.command(name, *arguments)
        return Program(argv, env=env, cwd=self.workspace(name))

    def ident(self) -> str:
        self._number += 1
        return f"i{self._number:04d}x"

    def run(self, argv: list[str], name: str) -> tuple[float, str]:
        """Run a program to its end and return its CPU seconds and output."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        env, cwd = self.environment(name), self.workspace(name)
        ran = subprocess.run(argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, ran.stdout.decode()

    def both(self, measure: Callable[[str], dict[str, float]], names: tuple[str, ...]) -> dict[str, dict[str, float]]:
        """Return the median of each figure for each of `names`, run in turns after one run that warms caches up."""
        found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for number in range(self.runs + 1):
            for name in names if number % 2 else names[::-1]:
                figures = measure(name)
                if number:
                    found[name].append(figures)
        return {
            name: {key: statistics.median(one[key] for one in runs) for key in runs[0]} for name, runs in found.items()
        }


def start(bench: Bench) -> Iterator[Figure]:
    """From the start to the first key, and to the request of a message sent at once."""

    def once(name: str) -> dict[str, float]:
        ident, chat = bench.ident(), bench.chat(name)
        try:
            chat.until("Message")
            typed = chat.send("Z")
            key = chat.until("Z") - typed
            chat.send("\x7f")
            chat.rest(0.05)
            chat.leave()
            chat = bench.chat(name)
            chat.until("Message")
            chat.send(f"stream:5:0:{ident}")
            chat.until(ident)
            sent = chat.send("\r")
            chat.until(f"END{ident}")
            request = bench.server.at("request", ident) - sent
            chat.leave()
            return {"key": key * 1e3, "request": request * 1e3}
        finally:
            chat.kill()

    found = bench.both(once, ("chatops", "floor"))
    ours, floor = found["chatops"], found["floor"]
    yield Figure(name="first key after the start", ours=ours["key"], floor=floor["key"], target=1.5)
    yield Figure(name="sent at once: Enter to request", ours=ours["request"], floor=floor["request"], target=1.5)


def headless(bench: Bench) -> Iterator[Figure]:
    """``chatops -p`` against a script: to the first request, and for each tool round."""
    rounds = 80
    bench.environment("headless")
    for number in range(rounds):
        (bench.workspace("headless") / f"f{number}.txt").write_text("text\n")

    def argv(name: str, prompt: str) -> list[str]:
        if name == "headless":
            return bench.command("headless", "-p", prompt)
        return [sys.executable, str(FLOOR / "post.py"), bench.server.url, prompt, "durable"]

    def once(name: str) -> dict[str, float]:
        ident = bench.ident()
        begun = time.monotonic()
        none, _ = bench.run(argv(name, f"stream:5:0:{ident}"), name)
        first = bench.server.at("request", ident) - begun
        some, output = bench.run(argv(name, f"rounds:{rounds}"), name)
        used = float(output) if name == "script" else some - none
        return {"first": first * 1e3, "round": used / rounds * 1e3}

    found = bench.both(once, ("headless", "script"))
    ours, script = found["headless"], found["script"]
    yield Figure(name="-p: start to request", ours=ours["first"], floor=script["first"], target=1.25)
    yield Figure(name="tool round, CPU (post + 3 durable commits)", ours=ours["round"], floor=script["round"], target=2)


def chatting(bench: Bench) -> Iterator[Figure]:
    """Keys and small exchanges in a warm chat, and leaving it."""

    def once(name: str) -> dict[str, float]:
        chat = bench.chat(name)
        try:
            chat.until("Message")
            chat.rest(3.0)
            keys = sorted(_key(chat, letter) for letter in KEYS * 4)
            requests, lags = [], []
            begun = chat.cpu()
            for number in range(EXCHANGES):
                ident = bench.ident()
                chat.send(f"stream:{SMALL}:60:{ident}")
                chat.until(ident)
                chat.rest(0.1)
                sent = chat.send("\r")
                seen = chat.until(f"END{ident}")
                chat.rest(0.2)
                if number:
                    requests.append(bench.server.at("request", ident) - sent)
                    lags.append(seen - bench.server.at("last", ident))
            used = (chat.cpu() - begun) / EXCHANGES
            left = chat.leave()
            return {
                "p50": keys[len(keys) // 2] * 1e3,
                "p95": keys[int(len(keys) * 0.95)] * 1e3,
                "request": statistics.median(requests) * 1e3,
                "lag": statistics.median(lags) * 1e3,
                "cpu": used * 1e3,
                "exit": left * 1e3,
            }
        finally:
            chat.kill()

    found = bench.both(once, ("chatops", "floor"))
    ours, floor = found["chatops"], found["floor"]
    yield Figure(name="warm: Enter to request", ours=ours["request"], floor=floor["request"], target=1.5)
    yield Figure(name="key, idle, p50", ours=ours["p50"], floor=floor["p50"], target=1.25)
    yield Figure(name="key, idle, p95", ours=ours["p95"], floor=floor["p95"], target=1.25)
    yield Figure(name="exchange, CPU", ours=ours["cpu"], floor=floor["cpu"], target=1.2)
    yield Figure(name="small reply: last token to visible", ours=ours["lag"], target=20)
    yield Figure(name="exit", ours=ours["exit"], target=50)


def _key(chat: Program, letter: str) -> float:
    typed = chat.send(letter)
    shown = chat.until(letter) - typed
    chat.rest(0.05)
    chat.send("\x7f")
    chat.rest(0.05)
    return shown


def streaming(bench: Bench) -> Iterator[Figure]:
    """A reply of 5,000 tokens at 500 a second, with a key every 0.15 s in its second half."""

    def once(name: str) -> dict[str, float]:
        ident, chat = bench.ident(), bench.chat(name)
        try:
            chat.until("Message")
            chat.rest(3.0)
            chat.send(f"stream:{FULL_RATE * STREAM_S}:{FULL_RATE}:{ident}")
            chat.until(ident)
            cpu, written = chat.cpu(), chat.bytes
            chat.send("\r")
            chat.rest(STREAM_S / 2)
            typed, keys = "", []
            for number in range(int(STREAM_S / 2 / 0.15) - 2):
                typed += KEYS[number % len(KEYS)]
                at = chat.send(typed[-1])
                keys.append(chat.until(typed[-4:]) - at)
                chat.rest(max(0.0, at + 0.15 - time.monotonic()))
            chat.until(f"END{ident}")
            keys.sort()
            figures = {
                "cpu": (chat.cpu() - cpu) * 1e3,
                "bytes": (chat.bytes - written) / 1e3,
                "p95": keys[int(len(keys) * 0.95)] * 1e3,
            }
            figures["exit"] = chat.leave() * 1e3
            return figures
        finally:
            chat.kill()

    found = bench.both(once, ("chatops", "floor"))
    ours, floor = found["chatops"], found["floor"]
    yield Figure(name="stream of 10 s, CPU", ours=ours["cpu"], floor=floor["cpu"], target=1.05)
    yield Figure(name="stream of 10 s, to the terminal", ours=ours["bytes"], floor=floor["bytes"], target=1, unit="kB")
    yield Figure(name="key while streaming, p95", ours=ours["p95"], floor=floor["p95"], target=0.95)
    yield Figure(name="exit after it", ours=ours["exit"], target=50)


def history(bench: Bench) -> Iterator[Figure]:
    """Long sessions: opening one, keys and rest in it, paging, a round in it, its size in the store."""

    def sessions(*arguments: str, name: str) -> float:
        command = [sys.executable, "-m", "tests.benchmarks.sessions", arguments[0], str(bench.registry(name))]
        command += [str(bench.workspace(name)), *arguments[1:]]
        out = subprocess.run(command, env=bench.environment(name), capture_output=True, text=True, check=True)
        return float(out.stdout.split()[-1])

    sizes = {count: sessions("make", str(count // 2), name=f"history{count}") for count in (100, *LENGTHS)}

    def opened(name: str) -> dict[str, float]:
        count = int(name.removeprefix("history") or 0)
        chat = bench.chat(name, "-c") if count else bench.chat("empty")
        try:
            shown = chat.until(f"ENDS{count // 2 - 1:05d}" if count else "assistant")
            cpu, written = chat.cpu(), chat.bytes
            keys = sorted(_key(chat, letter) for letter in KEYS * 2)
            chat.rest(QUIET_S)
            figures = {
                "shown": (shown - chat.started) * 1e3,
                "key": keys[int(len(keys) * 0.95)] * 1e3,
                "cpu": (chat.cpu() - cpu) * 1e3,
                "bytes": (chat.bytes - written) / 1e3,
            }
            pages = []
            for _ in range(8 if count else 0):
                at = chat.send("\x1b[5~")
                pages.append((chat.pump(5.0) or at) - at)
                chat.rest(0.2)
            figures["page"] = max(pages, default=0.0) * 1e3
            figures["exit"] = chat.leave() * 1e3
            return figures
        finally:
            chat.kill()

    found = bench.both(opened, ("", *(f"history{count}" for count in LENGTHS)))
    empty = found[""]
    for count, times, cpu in zip(LENGTHS, (1.5, 2.0), (500, 1_000), strict=True):
        ours = found[f"history{count}"]
        named = f"{count:,} messages"
        yield Figure(name=f"{named}: start to tail", ours=ours["shown"], floor=empty["shown"], target=times)
        yield Figure(name=f"{named}: CPU at rest, beyond an empty one", ours=ours["cpu"] - empty["cpu"], target=cpu)
        yield Figure(name=f"{named}: to the terminal at rest", ours=ours["bytes"], target=100, unit="kB")
        yield Figure(name=f"{named}: key meanwhile, p95", ours=ours["key"], floor=empty["key"], target=1.25)
        yield Figure(name=f"{named}: page up", ours=ours["page"], target=20)
        yield Figure(name=f"{named}: exit", ours=ours["exit"], target=100)
    short, long = (sessions("rounds", name=f"history{count}") for count in (100, LENGTHS[-1]))
    yield Figure(name=f"round after {LENGTHS[-1]:,} messages, CPU (after 100)", ours=long, floor=short, target=2)
    yield Figure(name="store, for each short exchange", ours=sizes[LENGTHS[-1]] / 1e3, target=3, unit="kB")


def memory(bench: Bench) -> Iterator[Figure]:
    """Memory after 200 exchanges."""

    def once(name: str) -> dict[str, float]:
        chat = bench.chat(name)
        try:
            chat.until("Message")
            chat.rest(2.0)
            for _ in range(200):
                ident = bench.ident()
                chat.send(f"stream:300:0:{ident}")
                chat.until(ident)
                chat.send("\r")
                chat.until(f"END{ident}")
            bench.server.clear()
            used = chat.memory()
            chat.leave()
            return {"memory": used}
        finally:
            chat.kill()

    found = {name: once(name) for name in ("chatops", "floor")}
    ours, floor = found["chatops"]["memory"], found["floor"]["memory"]
    yield Figure(name="memory after 200 exchanges", ours=ours, floor=floor, target=1.3, unit="MB")


MEASURES = {one.__name__: one for one in (history, start, headless, chatting, streaming, memory)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=3, help="runs of each program after the first; default 3")
    parser.add_argument("--only", action="append", choices=[*MEASURES], help="measure this; may be repeated")
    default = user_cache_path("chatops") / "benchmarks.jsonl"
    parser.add_argument("--history", type=Path, default=default, help=f"file to add a line to; default {default}")
    arguments = parser.parse_args()
    take_priority()
    figures: list[Figure] = []
    print(f"{'measure':46} {'ours':>9} {'floor':>9}")
    with tempfile.TemporaryDirectory(prefix="chatops-bench-") as folder:
        bench = Bench(Path(folder), arguments.runs)
        try:
            for name in arguments.only or MEASURES:
                for figure in MEASURES[name](bench):
                    figures.append(figure)
                    print(figure, flush=True)
        finally:
            bench.server.close()
    line = {"at": time.strftime("%FT%TZ", time.gmtime()), "load": os.getloadavg()[0]}
    line |= {one.name: [round(one.ours, 1), None if one.floor is None else round(one.floor, 1)] for one in figures}
    arguments.history.parent.mkdir(parents=True, exist_ok=True)
    with arguments.history.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(f"Added to {arguments.history}")


if __name__ == "__main__":
    main()
