"""Keeps a process running that follows the log of an unmodified vLLM, and knows when its word on who has died may be taken."""

import os
import select
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from lora_watch.agent.lines import writer_lives

END_SECONDS = 5.0
"""How long the process may take to end when told to; then it is killed, which costs nothing."""


class Following:
    """
    The process of ``lora_watch.agent.follow``, started again after it has ended. Thread-safe.

    It holds the locks that say who lives. While it is gone, or has not caught up with its log, nobody holds them, and that means
    nothing: then every boot counts as alive (``alive``), since a death, once told, takes a seq that a record may yet bear.
    """

    def __init__(self, log: Path, directory: Path, *, command: Sequence[str] | None = None) -> None:
        self._command = command or (sys.executable, "-m", "lora_watch.agent.follow", str(log), str(directory))
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._ready = False

    def start(self) -> bool:
        """Start it unless it runs; True if it had to be."""
        with self._lock:
            if self._child is not None and self._heard(self._child, 0.0):
                return False
            self._end()
            self._child = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
            return True

    def caught_up(self, wait_seconds: float = 0.0) -> bool:
        """Does it run, and has it said that it came to the end of its log? Waits for that as long as it may."""
        with self._lock:
            return self._child is not None and self._heard(self._child, wait_seconds) and self._ready

    def alive(self, header: Path) -> bool:
        """Does the writer of ``header`` live, or can that not be known?"""
        # in this order: a process that ends closes its output ahead of its locks
        return writer_lives(header) or not self.caught_up()

    def close(self) -> None:
        """End it."""
        with self._lock:
            self._end()

    def _heard(self, child: "subprocess.Popen[bytes]", wait_seconds: float) -> bool:
        """Take in what it says; False if it has ended."""
        if child.stdout is None:
            return False
        poll = select.poll()
        poll.register(child.stdout, select.POLLIN)
        while poll.poll(0 if self._ready else wait_seconds * 1000):
            said = os.read(child.stdout.fileno(), 4096)
            if not said:
                return False
            self._ready = self._ready or b"ready" in said
        return True

    def _end(self) -> None:
        child, self._child, self._ready = self._child, None, False
        if child is None:
            return
        child.terminate()
        try:
            child.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        if child.stdout is not None:
            child.stdout.close()
