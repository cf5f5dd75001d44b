"""Our own processes under test: started on free ports of 127.0.0.1, stopped by pid."""

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType


class Process:
    """``python -m module arguments``; ``address`` is what it prints after ``word`` when it is ready."""

    def __init__(
        self, *arguments: str, word: str, log: Path, wait: float = 60.0, environment: dict[str, str] | None = None
    ) -> None:
        self._log = log.open("ab")
        self.log = log
        env = {**os.environ, **(environment or {})}
        self._process = subprocess.Popen(
            [sys.executable, "-m", *arguments], stdout=subprocess.PIPE, stderr=self._log, env=env, start_new_session=True
        )
        self.address = self._first(word, wait)

    def _first(self, word: str, wait: float) -> str:
        assert self._process.stdout is not None
        selector, text, end = selectors.DefaultSelector(), b"", time.monotonic() + wait
        selector.register(self._process.stdout, selectors.EVENT_READ)
        while time.monotonic() < end and selector.select(end - time.monotonic()):
            chunk = os.read(self._process.stdout.fileno(), 4096)
            text += chunk
            if match := re.search(rf"^{word}\s+(\S+)\n", text.decode(errors="replace"), re.MULTILINE):
                return match[1]
            if not chunk:
                break
        self.kill()
        raise AssertionError(f"no line {word!r} from {self._process.args}: {text!r}\n{self.log.read_text()[-4000:]}")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL, at once."""
        if self.alive:
            self._process.send_signal(signal.SIGKILL)
        self._close()

    def stop(self, number: signal.Signals = signal.SIGTERM, wait: float = 30.0) -> int:
        """A signal that asks it to end; the exit code."""
        self._process.send_signal(number)
        try:
            return self._process.wait(wait)
        finally:
            self.kill()

    def _close(self) -> None:
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()
