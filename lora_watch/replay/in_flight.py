"""The requests in flight of all pods, in a heap: the one that ends first on top."""

from lora_watch.replay.compiled import part, whole
from lora_watch.replay.state import END, Log, Pods


@part
def _before(log: Log, i: int, j: int) -> bool:
    """Whether request i ends before request j."""
    return log.times[END, i] < log.times[END, j] or (log.times[END, i] == log.times[END, j] and i < j)


@part
def push(pods: Pods, log: Log, i: int) -> None:
    """Into the heap of requests in flight."""
    place = pods.clock[1]
    pods.clock[1] += 1
    while place > 0 and _before(log, i, whole(log.heap[(place - 1) // 2])):
        log.heap[place] = log.heap[(place - 1) // 2]
        place = (place - 1) // 2
    log.heap[place] = i


@part
def pop(pods: Pods, log: Log) -> int:
    """The request in flight that ends first, out of the heap."""
    top = whole(log.heap[0])
    pods.clock[1] -= 1
    size = pods.clock[1]
    moved, place = whole(log.heap[size]), 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and _before(log, whole(log.heap[child + 1]), whole(log.heap[child])):
            child += 1
        if not _before(log, whole(log.heap[child]), moved):
            break
        log.heap[place] = log.heap[child]
        place = child
    log.heap[place] = moved
    return top
