"""
What the rules cost a Prometheus of 200 pods × 500 adapters: seconds of each group's evaluation against its interval, and the
series that are recorded. ``python benchmarks/rules_load.py [--install raw|full] [--pods 200] [--adapters 500] [--twins]``

The history (six minutes at 30 s) is laid with promtool, then Debian's Prometheus evaluates the rules at their own intervals.
``--twins``: the router exports its counter under two names, as current ones do.
"""

import argparse
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from lora_watch import names
from lora_watch.rules.render import rules
from lora_watch.rules.rule import Install

SCRAPES, EVERY = 13, 30.0


def history(pods: int, adapters: int, *, twins: bool) -> Iterator[str]:
    """Lines of OpenMetrics, a scrape after the other; times are seconds before the end."""
    for scrape in range(SCRAPES):
        ago = (SCRAPES - 1 - scrape) * EVERY
        for p in range(pods):
            pod = f'cluster="eu",pool="chat",pod="vllm-{p}"'
            counts = {
                f'{names.MAX_GPU_ADAPTERS}{{{pod},engine="0",model_name="base"}}': 8,
                f"{names.AGENT_STEPS}{{{pod}}}": scrape * 600,
                f'{names.AGENT_LOADS}{{{pod},tier="gpu",from_tier="cpu",reason="demand"}}': scrape * (p % 7),
                f'{names.AGENT_EVICTIONS}{{{pod},tier="gpu",reason="lru"}}': scrape * (p % 7),
                f'{names.AGENT_EXECUTE_SECONDS}{{{pod},clock="cuda"}}': scrape * 20,
                f'{names.AGENT_ADAPTER_SECONDS}{{{pod},clock="cuda"}}': scrape * 3,
                f'{names.AGENT_REQUESTS}{{{pod},finish_reason="stop"}}': scrape * 100,
            }
            for histogram in names.HISTOGRAMS[-2:]:
                counts[f'{histogram}_sum{{{pod},engine="0"}}'] = counts[f'{histogram}_count{{{pod},engine="0"}}'] = scrape * 30
            for a in range(adapters):
                for name, label in zip(names.EPP_ATTEMPTS[:: 2 if twins else 3], ("endpoint_name", "pod_name"), strict=False):
                    whose = f'cluster="eu",instance="epp",{label}="vllm-{p}",target_model_name="adapter-{a}",status="success"'
                    counts[f"{name}{{{whose}}}"] = scrape * (1 + a * p % 3)
            for series, value in counts.items():
                yield f"{series} {value} {{at:{ago}}}"


def lay(folder: Path, lines: Iterator[str]) -> None:
    """The lines as blocks that end now."""
    now = time.time()
    with (folder / "history.om").open("w", encoding="utf-8") as file:
        for line in lines:
            text, _, ago = line.rpartition(" {at:")
            file.write(f"{text} {now - float(ago[:-1]):.3f}\n")
        file.write("# EOF\n")
    make = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(folder / "history.om"), str(folder / "data")]
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
    (folder / "history.om").unlink()


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=120) as answer:
        return json.load(answer)["data"]


def count(url: str, expression: str) -> int:
    result = get(f"{url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}")["result"]
    return int(float(result[0]["value"][1])) if result else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", choices=[one.value for one in Install], default="full")
    parser.add_argument("--pods", type=int, default=200)
    parser.add_argument("--adapters", type=int, default=500)
    parser.add_argument("--twins", action="store_true")
    parser.add_argument("--seconds", type=float, default=190)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "rules.yaml").write_text(rules(Install(asked.install)), encoding="utf-8")
        (folder / "prometheus.yml").write_text("rule_files: [rules.yaml]\n", encoding="utf-8")
        lay(folder, history(asked.pods, asked.adapters, twins=asked.twins))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        options = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
        options += [f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=100y"]
        with subprocess.Popen(["prometheus", *options], stderr=subprocess.DEVNULL) as process:
            try:
                return report(asked, url, psutil.Process(process.pid))
            finally:
                process.send_signal(signal.SIGKILL)


def report(asked: argparse.Namespace, url: str, process: psutil.Process) -> int:
    """Look at the groups until the time is over; the slowest of each group's evaluations that read something counts."""
    slowest: dict[str, tuple[float, float]] = {}
    end = time.monotonic() + asked.seconds
    while time.monotonic() < end:
        time.sleep(2)
        try:
            groups = get(f"{url}/api/v1/rules")["groups"]
        except OSError:
            continue
        for group in groups:
            before = slowest.get(group["name"], (0.0, group["interval"]))[0]
            slowest[group["name"]] = (max(before, group["evaluationTime"]), group["interval"])
    cpu = sum(process.cpu_times()[:2])
    series = count(url, f'count({{__name__=~"{"|".join(names.EPP_ATTEMPTS)}"}})')
    recorded = count(url, 'count({__name__=~"(pod|pool|pool_adapter|pool_phase|watch):.+"})')
    by_adapter = count(url, 'count({__name__=~"pool_adapter:.+"})')
    sys.stdout.write(
        f"install {asked.install}, {asked.pods} pods × {asked.adapters} adapters, {series} series of the router\n"
        f"recorded: {recorded} series, {by_adapter} of them by adapter; Prometheus took {cpu:.1f} CPU s and "
        f"{process.memory_info().rss / 2**20:.0f} MiB\n\n"
        f"| group | slowest evaluation, s | interval, s | share |\n| --- | --- | --- | --- |\n"
    )
    for name, (seconds, interval) in slowest.items():
        sys.stdout.write(f"| {name} | {seconds:.2f} | {interval:.0f} | {seconds / interval:.1%} |\n")
    return 0 if series and recorded else 1


if __name__ == "__main__":
    sys.exit(main())
