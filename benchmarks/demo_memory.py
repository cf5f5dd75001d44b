"""
What `lora-watch demo` takes: memory of all its processes together, CPU, and when its lines came.

    python benchmarks/demo_memory.py [--seconds 300] [arguments of the demo]

Memory is proportional set size (pages that processes share count once), looked at twice a second.
"""

import argparse
import subprocess
import sys
import threading
import time

import psutil


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=300.0)
    options, rest = parser.parse_known_args()
    began = time.monotonic()
    demo = subprocess.Popen([sys.executable, "-m", "lora_watch.cli", "demo", "--stay", *rest], stdout=subprocess.PIPE, text=True)
    threading.Thread(target=show, args=(demo, began), daemon=True).start()
    process, peak, cpu = psutil.Process(demo.pid), 0, 0.0
    while demo.poll() is None and time.monotonic() - began < options.seconds:
        time.sleep(0.5)
        try:
            tree = [process, *process.children(recursive=True)]
            sizes = [one.memory_full_info().pss for one in tree]
            cpu = sum(sum(one.cpu_times()[:2]) for one in tree)
        except psutil.NoSuchProcess:
            continue
        peak = max(peak, sum(sizes))
    demo.terminate()
    demo.wait()
    passed = time.monotonic() - began
    print(f"peak {peak / 2**20:.0f} MiB, CPU {cpu:.0f} s in {passed:.0f} s, exit code {demo.returncode}")


def show(demo: "subprocess.Popen[str]", began: float) -> None:
    assert demo.stdout is not None
    for line in demo.stdout:
        print(f"{time.monotonic() - began:6.1f} s  {line}", end="", flush=True)


if __name__ == "__main__":
    main()
