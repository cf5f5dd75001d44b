"""
What the agent costs an engine: microseconds per step and per event, and CPU seconds per request on a real server.

``python benchmarks/agent_cost.py hooks`` needs nothing: it puts the hooks around empty methods and takes their own cost away.
Budget: (2 + 0.2 × adapters in the batch) µs for a step in which nothing changes, 20 µs for an event.

``python benchmarks/agent_cost.py pairs --venv VENV --model DIR --site SITE`` starts two vLLM servers (see the README of the tiny
vLLM), one with the agent on PYTHONPATH, sends both the same traffic in turns, and compares the CPU time of their process trees.
"""

import argparse
import contextlib
import json
import math
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def hooks(rounds: int) -> None:
    """Print the cost of the hooks around methods that do nothing."""
    for adapters in range(9):
        bare, hooked = [], []
        for _ in range(5):
            bare.append(_steps(rounds, adapters, with_agent=False))
            hooked.append(_steps(rounds, adapters, with_agent=True))
        cost = min(hooked) - min(bare)
        print(f"step without a change, {adapters} adapters: {cost:5.2f} µs (budget {2 + 0.2 * adapters:.1f})")
    with tempfile.TemporaryDirectory() as directory:
        _, watch = _worker(Path(directory), with_agent=True, adapters=1)
        recorder = watch.recorder
        fields = {
            "tier": "gpu",
            "from_tier": "cpu",
            "adapter": "legal-v2",
            "adapter_id": 3,
            "slot": 0,
            "seconds": 0.0028,
            "rank": 16,
            "bytes": 65_536_000,
            "reason": "demand",
            "in_step": True,
            "ok": True,
        }
        count = max(rounds // 10, 100)
        start = time.perf_counter()
        for _ in range(count):
            recorder.record("load", fields)
        alone = (time.perf_counter() - start) / count * 1e6
        start = time.perf_counter()
        for _ in range(count // 4):
            recorder.held = True
            for _ in range(4):
                recorder.record("load", fields)
            recorder.held = False
            recorder.write()
        batched = (time.perf_counter() - start) / (count // 4 * 4) * 1e6
        print(f"event, written alone: {alone:5.2f} µs; four in one step, each: {batched:5.2f} µs (budget 20)")


class Requests:
    """A request as the hooks see it."""

    def __init__(self, number: int) -> None:
        self.lora_name, self.lora_int_id = f"adapter-{number}", number


class Scheduled:
    """A step with work."""

    total_num_scheduled_tokens = 8


def _steps(rounds: int, adapters: int, *, with_agent: bool) -> float:
    with tempfile.TemporaryDirectory() as directory:
        worker, _ = _worker(Path(directory), with_agent=with_agent, adapters=adapters)
        scheduled = Scheduled()
        execute, sample = worker.execute_model, worker.sample_tokens
        start = time.process_time()  # not disturbed by what else runs
        for _ in range(rounds):
            execute(scheduled)
            sample(None)
        return (time.process_time() - start) / rounds * 1e6


def _worker(directory: Path, *, with_agent: bool, adapters: int):
    """A worker whose methods do nothing but call each other as vLLM's do, and its hooks."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from lora_watch.agent.guard import Guard
    from lora_watch.agent.hooks import WorkerHooks
    from lora_watch.agent.recorder import Place, Recorder

    requests = [Requests(i) for i in range(1, adapters + 1)]

    class Manager:
        lora_slots, capacity = 8, 8

        def activate_adapter(self, lora_id):  # noqa: ARG002 - the engine's signature
            return False

        def __init__(self) -> None:
            pass

    class Tiers:
        def __init__(self) -> None:
            self.manager = Manager()

        def _apply_adapters(self, batch):
            for request in batch:
                self.manager.activate_adapter(request.lora_int_id)

    class Worker:
        def __init__(self) -> None:
            self.tiers = Tiers()

        def execute_model(self, scheduled):  # noqa: ARG002
            self.tiers._apply_adapters(set(requests))

        def sample_tokens(self, grammar):  # noqa: ARG002
            return None

    watch = WorkerHooks(
        Recorder(Place(directory / "log")), Guard(), ranks=lambda: (0, 0), describe=lambda *_: {"engine": "0", "model": "tiny"}
    )
    if with_agent:
        Manager.__init__ = watch.around_manager(Manager.__init__)
        Manager.activate_adapter = watch.around_activate(Manager.activate_adapter)
        Tiers._apply_adapters = watch.around_apply(Tiers._apply_adapters)
        Worker.execute_model = watch.around_execute(Worker.execute_model)
        Worker.sample_tokens = watch.around_sample(Worker.sample_tokens)
    worker = Worker()
    for request in requests:
        watch.gpu[request.lora_int_id] = (request.lora_int_id - 1, 0)
    return worker, watch


# --- a real server --------------------------------------------------------------------------------------------------------------


def pairs(options: argparse.Namespace) -> None:
    """Print the ratio of CPU seconds per request with and without the agent, with its 95 % interval."""
    log = Path(tempfile.mkdtemp(prefix="lora-watch-cost-"))
    servers = {}
    try:
        for name in ("without", "with"):
            servers[name] = _start(options, log, with_agent=name == "with")
        for name, (port, process) in servers.items():
            _wait(port, process, name)
        ratios = _compare(options, servers)
    finally:
        for _, process in servers.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for _, process in servers.values():
            process.wait(timeout=60)
        shutil.rmtree(log, ignore_errors=True)
    logs = [math.log(ratio) for ratio in ratios]
    mean, error = statistics.fmean(logs), statistics.stdev(logs) / math.sqrt(len(logs))
    # the normal quantile: from 20 pairs on Student's is within 7 % of it, and the half width says so
    low, high = (math.exp(mean + sign * _student(len(logs) - 1) * error) for sign in (-1, 1))
    interval = f"95 % interval {low:.4f} … {high:.4f}, {len(ratios)} pairs"
    print(f"CPU seconds per request, with ÷ without: {math.exp(mean):.4f} ({interval})")


def _student(freedom: int) -> float:
    """The 97.5 % quantile of Student's t, by its expansion around the normal one (error below 0.01 from 8 degrees on)."""
    z = 1.959964
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def _start(options: argparse.Namespace, log: Path, *, with_agent: bool):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CACHE_ROOT": str(options.model / "cache"),
        "LORA_WATCH_LOG_DIR": str(log / "events"),
        "LORA_WATCH_AGENT": "on" if with_agent else "off",
    }
    environment.pop("PYTHONPATH", None)
    if with_agent:
        environment["PYTHONPATH"] = str(options.site)
    adapters = sorted((options.model / "adapters").iterdir())
    command = [
        *(options.venv / "bin" / "python", "-m", "vllm.entrypoints.openai.api_server", "--model", options.model / "model"),
        *("--served-model-name", "tiny", "--host", "127.0.0.1", "--port", port, "--dtype", "bfloat16", "--max-model-len", 1024),
        *("--max-num-seqs", 8, "--enable-lora", "--max-lora-rank", 16, "--max-loras", 2, "--max-cpu-loras", 4, "--lora-modules"),
        *(f"{adapter.name}={adapter}" for adapter in adapters),
    ]
    output = (log / f"server-{port}.log").open("wb")
    process = subprocess.Popen(list(map(str, command)), env=environment, stdout=output, stderr=output, start_new_session=True)
    return port, process


def _wait(port: int, process: subprocess.Popen, name: str) -> None:
    for _ in range(300):
        if process.poll() is not None:
            raise SystemExit(f"the server {name} the agent ended with {process.returncode}")
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
            return
        time.sleep(1)
    raise SystemExit(f"the server {name} the agent did not come up")


def _compare(options: argparse.Namespace, servers) -> list[float]:
    rng = random.Random(options.seed)
    names = [adapter.name for adapter in sorted((options.model / "adapters").iterdir())]
    ratios = []
    for pair in range(-1, options.pairs):  # the first warms up and is thrown away
        asked = rng.choices(names, [1 / (i + 1) for i in range(len(names))], k=options.requests)
        spent = {}
        for name in rng.sample(["with", "without"], 2):
            port, process = servers[name]
            before = _cpu_seconds(process.pid)
            for adapter in asked:
                _ask(port, adapter, options.tokens)
            spent[name] = _cpu_seconds(process.pid) - before
        if pair >= 0:
            ratios.append(spent["with"] / spent["without"])
            print(f"pair {pair + 1}: {spent['with']:.2f} s with, {spent['without']:.2f} s without", flush=True)
    return ratios


def _ask(port: int, adapter: str, tokens: int) -> None:
    body = json.dumps({"model": adapter, "prompt": "hello small model", "max_tokens": tokens, "ignore_eos": True}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        answer.read()


def _cpu_seconds(root: int) -> float:
    """User and system time of ``root`` and all that came from it, seconds."""
    parents, times = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
                times[int(entry.name)] = (int(fields[11]) + int(fields[12])) / TICKS
    total, wanted = 0.0, [root]
    while wanted:
        pid = wanted.pop()
        total += times.get(pid, 0.0)
        wanted += [child for child, parent in parents.items() if parent == pid]
    return total


def main() -> None:
    """Run one part."""
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parse.add_subparsers(dest="part", required=True)
    part = parts.add_parser("hooks", help="µs per step and per event")
    part.add_argument("--rounds", type=int, default=100_000)
    part = parts.add_parser("pairs", help="CPU seconds per request of two real servers")
    part.add_argument("--venv", type=Path, required=True, help="a virtual environment with vLLM")
    part.add_argument("--model", type=Path, required=True, help="a folder with model/ and adapters/")
    part.add_argument("--site", type=Path, required=True, help="where the agent's wheel is installed with --target")
    part.add_argument("--pairs", type=int, default=20)
    part.add_argument("--requests", type=int, default=30, help="requests in each half of a pair")
    part.add_argument("--tokens", type=int, default=16)
    part.add_argument("--seed", type=int, default=1)
    options = parse.parse_args()
    if options.part == "hooks":
        hooks(options.rounds)
    else:
        pairs(options)


if __name__ == "__main__":
    main()
