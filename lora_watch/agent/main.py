"""The console script ``lora-watch-agent``: the sidecar beside an engine."""

import argparse
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from lora_watch.agent.following import Following
from lora_watch.agent.log import LogReader
from lora_watch.agent.recorder import DEFAULT_DIRECTORY, DEFAULT_MAX_BYTES

PRUNE_SECONDS = 10.0
CATCH_UP_SECONDS = 10.0
"""How long the first page waits for a vLLM's log to be read; a longer log is served as it is being read."""
TOKEN = "LORA_WATCH_AGENT_TOKEN"


def parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    """Flags; the environment gives their defaults."""
    parse = argparse.ArgumentParser(
        prog="lora-watch-agent",
        description="Serves the event logs that the lora_watch plug-in writes inside vLLM: /events, /state, /metrics, /healthz.",
        epilog=f"A bearer token is taken from {TOKEN} or --token-file; there is no flag for it: every process can see flags.",
    )
    parse.add_argument(
        "--log-dir",
        type=Path,
        default=Path(environment.get("LORA_WATCH_LOG_DIR") or DEFAULT_DIRECTORY),
        help="where the plug-in writes (LORA_WATCH_LOG_DIR; %(default)s)",
    )
    parse.add_argument(
        "--max-bytes",
        type=_positive,
        default=environment.get("LORA_WATCH_LOG_MAX_BYTES") or str(DEFAULT_MAX_BYTES),
        help="logs kept on disk; the oldest segments go first (LORA_WATCH_LOG_MAX_BYTES; %(default)s)",
    )
    parse.add_argument(
        "--host", default=environment.get("LORA_WATCH_AGENT_HOST") or "127.0.0.1", help="(LORA_WATCH_AGENT_HOST; %(default)s)"
    )
    parse.add_argument(
        "--port",
        type=_port,
        default=environment.get("LORA_WATCH_AGENT_PORT") or "9465",
        help="0 takes a free one (LORA_WATCH_AGENT_PORT; %(default)s)",
    )
    parse.add_argument(
        "--engine-metrics",
        type=_url,
        default=environment.get("LORA_WATCH_ENGINE_METRICS") or None,
        metavar="URL",
        help="the engine's own page, served along with ours: one port to scrape (LORA_WATCH_ENGINE_METRICS)",
    )
    parse.add_argument(
        "--token-file", type=Path, default=environment.get("LORA_WATCH_AGENT_TOKEN_FILE"), help="(LORA_WATCH_AGENT_TOKEN_FILE)"
    )
    parse.add_argument(
        "--vllm-log",
        type=Path,
        default=environment.get("LORA_WATCH_VLLM_LOG") or None,
        metavar="FILE",
        help="for an engine without the plug-in: follow its log and serve what it says of adapters (LORA_WATCH_VLLM_LOG)",
    )
    parse.add_argument(
        "--print-logging-config",
        action="store_true",
        help="print the logging configuration that writes such a log, for VLLM_LOGGING_CONFIG_PATH, and end",
    )
    return parse


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; 0 then, 1 where the server could not start, 2 for a wrong flag."""
    options = parser(os.environ).parse_args(arguments)
    if options.print_logging_config:
        print(Path(__file__).with_name("vllm-logging.json").read_text(encoding="utf-8"), end="")  # noqa: T201
        return 0
    from lora_watch.agent.metrics import EnginePage  # after the flags: --help needs no prometheus_client
    from lora_watch.agent.sidecar import Logs, Sidecar

    token = os.environ.get(TOKEN) or None
    if token is not None and not (token := token.strip()):
        print(f"{TOKEN} is blank", file=sys.stderr)  # noqa: T201
        return 1
    if options.token_file is not None:
        try:
            token = options.token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            print(f"the token file can't be read: {error}", file=sys.stderr)  # noqa: T201 - a console script
            return 1
        if not token:
            print(f"the token file {options.token_file} is empty", file=sys.stderr)  # noqa: T201
            return 1
    stopped = threading.Event()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        stopped.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    following = Following(options.vllm_log, options.log_dir) if options.vllm_log else None
    reader = LogReader(options.log_dir, alive=following.alive) if following else None
    logs = Logs(options.log_dir, options.max_bytes, reader=reader)
    engine = EnginePage(options.engine_metrics) if options.engine_metrics else None
    try:
        sidecar = Sidecar(logs, host=options.host, port=options.port, token=token, engine=engine)
    except OSError as error:
        print(f"can't listen on {options.host}:{options.port}: {error}", file=sys.stderr)  # noqa: T201
        return 1
    with contextlib.ExitStack() as stack:
        if following is not None:
            stack.callback(following.close)
            following.start()
            if not following.caught_up(CATCH_UP_SECONDS):
                print(f"the log {options.vllm_log} is still being read, or can't be", file=sys.stderr)  # noqa: T201
        stack.enter_context(sidecar)
        print(f"agent     {sidecar.url}", flush=True)  # noqa: T201
        while not stopped.is_set():
            if following is not None:
                _keep_following(following, options.vllm_log)
            try:
                before = logs.forgotten
                logs.prune()
                if logs.forgotten > before:
                    print(f"forgot the logs of {logs.forgotten - before} processes that ended long ago", file=sys.stderr)  # noqa: T201
            except OSError as error:
                print(f"the logs can't be looked after: {error}", file=sys.stderr)  # noqa: T201
            stopped.wait(PRUNE_SECONDS)
    return 0


def _keep_following(following: Following, log: Path) -> None:
    """Start it again if it has ended; one word at each start after the first."""
    if following.start():
        print(f"the log {log} is no longer followed: starting again", file=sys.stderr)  # noqa: T201


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a positive number of bytes, got {text!r}")
    return int(text)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"a port from 0 to 65535, got {text!r}")
    return int(text)


def _url(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"an http:// or https:// address, got {text!r}")
    return text


if __name__ == "__main__":
    sys.exit(main())
