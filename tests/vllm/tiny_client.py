"""An HTTP client that costs next to nothing, so that its clock can be trusted: asyncio streams, one connection a request."""

import asyncio
import bisect
import dataclasses
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

BEAT_SECONDS = 0.01


@dataclass(frozen=True)
class Asked:
    """One completion as the client saw it; times in seconds since the epoch, None where it did not come to that."""

    request_id: str
    adapter: str
    sent: float
    first_byte: float | None
    finished: float | None
    status: int | None
    text: str
    late: float = 0.0
    """Seconds by which the client itself was late, at most, while it waited: the machine had no processor for it."""


async def call(port: int, path: str, body: Any = None, method: str = "POST") -> tuple[int, bytes]:
    """Status and body of a plain request; body None means GET."""
    payload = b"" if body is None else json.dumps(body).encode()
    reader, writer = await _open(port, path, payload, {}, "GET" if body is None else method)
    try:
        head, _, rest = (await reader.read(-1)).partition(b"\r\n\r\n")
    finally:
        writer.close()
    return int(head.split(b" ", 2)[1]), _dechunked(head, rest)


async def _open(
    port: int, path: str, payload: bytes, headers: dict[str, str], method: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Connection: close", f"Content-Length: {len(payload)}"]
    lines += ["Content-Type: application/json", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + payload)
    return reader, writer


def _dechunked(head: bytes, body: bytes) -> bytes:
    if b"transfer-encoding: chunked" not in head.lower():
        return body
    out = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size or b"0", 16)
        if length == 0:
            break
        out, body = out + body[:length], body[length + 2 :]
    return out


async def complete(port: int, adapter: str, request_id: str, tokens: int = 8, prompt: str = "which adapter") -> Asked:
    """One streamed completion, greedy, of exactly ``tokens`` tokens."""
    body = {"model": adapter, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "temperature": 0, "stream": True}
    payload = json.dumps(body).encode()
    received, first, finished, status = b"", None, None, None
    sent = time.time()
    try:
        reader, writer = await _open(port, "/v1/completions", payload, {"X-Request-Id": request_id}, "POST")
        try:
            while data := await reader.read(65536):
                now = time.time()
                received += data
                if first is None and b"\ndata: " in received:
                    first = now
                if finished is None and b"data: [DONE]" in received[-64:]:
                    finished = now
        finally:
            writer.close()
        status = int(received.split(b" ", 2)[1]) if received else None
    except OSError:
        finished = None
    return Asked(request_id, adapter, sent, first, finished, status, _text(received) if finished else "")


def _text(received: bytes) -> str:
    events = [line[6:] for line in received.splitlines() if line.startswith(b"data: {")]
    return "".join(json.loads(event)["choices"][0]["text"] for event in events)


class Traffic:
    """Seeded Zipf traffic; remembers everything it asked."""

    def __init__(self, port: int, seed: int) -> None:
        self.port = port
        self.random = random.Random(seed)
        self.asked: list[Asked] = []
        self._count = 0
        self._beats: list[tuple[float, float]] = []
        self._beating: asyncio.Task[None] | None = None

    async def _beat(self) -> None:
        while True:
            due = time.time() + BEAT_SECONDS
            await asyncio.sleep(BEAT_SECONDS)
            now = time.time()
            self._beats.append((now, now - due))

    async def ask(self, adapter: str, tokens: int = 8) -> Asked:
        """One request, remembered when it is done or broken."""
        self._beating = self._beating or asyncio.create_task(self._beat())
        self._count += 1
        asked = await complete(self.port, adapter, f"r{self.random.randrange(16**8):08x}-{self._count}", tokens)
        since = bisect.bisect_left(self._beats, (asked.sent, 0.0))
        asked = dataclasses.replace(asked, late=max((late for _, late in self._beats[since:]), default=0.0))
        self.asked.append(asked)
        return asked

    def choose(self, adapters: Sequence[str], exponent: float = 1.0) -> str:
        """An adapter by Zipf's law: the i-th in the list is asked in proportion to 1 / i**exponent."""
        return self.random.choices(adapters, [1 / (i + 1) ** exponent for i in range(len(adapters))])[0]

    async def one_by_one(self, adapters: Sequence[str], count: int) -> None:
        """``count`` requests, each after the one before."""
        for _ in range(count):
            await self.ask(self.choose(adapters))

    async def bursts(self, adapters: Sequence[str], count: int, size: int) -> None:
        """``count`` bursts of ``size`` requests at once."""
        for _ in range(count):
            await asyncio.gather(*(self.ask(self.choose(adapters)) for _ in range(size)))

    async def poisson(self, adapters: Sequence[str], per_second: float, seconds: float) -> None:
        """Arrivals at random moments, whether or not the server keeps up; waits for the last answer."""
        tasks, end = [], time.monotonic() + seconds
        while time.monotonic() < end:
            tasks.append(asyncio.create_task(self.ask(self.choose(adapters))))
            await asyncio.sleep(self.random.expovariate(per_second))
        await asyncio.gather(*tasks)
