"""Start and stop what the tests watch: the tiny vLLM server and the sidecar, each in a process group of its own."""

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ENVIRONMENT = {
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
    "VLLM_SERVER_DEV_MODE": "1",  # /collective_rpc: the engine's own account of what it holds
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_NUM_OF_RESERVED_CPU": "1",  # for the API server and the client, whose clocks are compared
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}
SLOTS, CPU_PLACES = 2, 4
FLAGS = ("--served-model-name", "tiny", "--host", "127.0.0.1", "--dtype", "bfloat16", "--max-model-len", "1024", "--seed", "0")
STOP_FLAGS = ("--shutdown-timeout", "20")  # vLLM's default is 0: its own stop kills a worker that is not gone at once
LORA_FLAGS = ("--enable-lora", "--max-lora-rank", "16")
SEATS = 8
START_SECONDS = 400


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@dataclass
class Process:
    """One process group that we started, and its output."""

    popen: subprocess.Popen[bytes]
    log: Path

    def alive(self) -> bool:
        return self.popen.poll() is None

    def kill(self) -> None:
        """SIGKILL to the whole group at once; nothing where it is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()

    def stop(self, seconds: float = 60) -> int:
        """SIGTERM to the leader; what does not go in time is killed. Returns the exit status."""
        if self.alive():
            self.popen.terminate()
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.popen.returncode


def spawn(command: Sequence[str | Path], log: Path, environment: Mapping[str, str]) -> Process:
    """Run it in the background, its output into ``log``."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("VLLM_", "LORA_WATCH_", "PYTHON"))}
    with log.open("ab") as out:
        popen = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**inherited, **environment},
            start_new_session=True,
        )
    return Process(popen, log)


def serve(
    venv: Path,
    model: Path,
    port: int,
    log: Path,
    environment: Mapping[str, str],
    modules: Mapping[str, Path],
    *,
    slots: int = SLOTS,
    cpu_places: int = CPU_PLACES,
) -> Process:
    """Start the server with these adapters and wait until it answers; raises RuntimeError with the log's end when it does not."""
    static = ("--lora-modules", *(f"{name}={path}" for name, path in modules.items())) if modules else ()
    command = [venv / "bin/python", "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--port", str(port)]
    environment = {**ENVIRONMENT, "VLLM_CACHE_ROOT": str(model.parent / "cache"), **environment}
    tiers = ("--max-loras", str(slots), "--max-cpu-loras", str(cpu_places), "--max-num-seqs", str(SEATS))
    server = spawn([*command, *FLAGS, *STOP_FLAGS, *LORA_FLAGS, *tiers, *static], log, environment)
    try:
        await_answer(server, f"http://127.0.0.1:{port}/health", START_SECONDS)
    except RuntimeError:
        server.kill()
        raise
    return server


def await_answer(process: Process, url: str, seconds: float) -> None:
    """Poll until the address answers 200."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not process.alive():
            break
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.25)
    tail = process.log.read_text(errors="replace")[-3000:]
    raise RuntimeError(f"{url} did not answer within {seconds} s; the log ends:\n{tail}")
