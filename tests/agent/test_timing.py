from agent.conftest import Clock

from lora_watch.agent.timing import UNRESOLVED, StepTimes, cuda_events


class Stream:
    """A GPU whose time is told: events are marks on it, and pass when it gets there."""

    def __init__(self):
        self.launched = 0.0  # ms of work launched
        self.done = 0.0  # ms of it done

    def event(self):
        return FakeEvent(self)


class FakeEvent:
    def __init__(self, stream):
        self.stream = stream

    def record(self):
        self.mark = self.stream.launched

    def query(self):
        return self.stream.done >= self.mark

    def elapsed_time(self, end):
        return end.mark - self.mark


def step(times, stream, milliseconds, adapter_milliseconds=0.0):
    times.start()
    if adapter_milliseconds:
        times.adapter_begins()
        stream.launched += adapter_milliseconds
        times.adapter_ends()
        times.adapter(0.0001)
    stream.launched += milliseconds
    times.end(0.0002, 1.0)


def on_gpu():
    times, stream = StepTimes(Clock().monotonic), Stream()
    times.make_event = stream.event
    return times, stream


def test_gpu_time_is_what_the_events_say_and_not_the_host():
    times, stream = on_gpu()
    step(times, stream, 20.0, adapter_milliseconds=5.0)
    stream.done = stream.launched
    record = times.take()
    assert (record["count"], record["execute_seconds"], record["adapter_seconds"], record["clock"]) == (1, 0.025, 0.005, "cuda")


def test_a_step_whose_events_have_not_passed_is_added_later_and_never_waited_for():
    times, stream = on_gpu()
    step(times, stream, 10.0)
    step(times, stream, 30.0)
    stream.done = 10.0
    assert (times.take()["execute_seconds"], times.count) == (0.01, 0)
    stream.done = 40.0
    assert times.take()["execute_seconds"] == 0.03


def test_events_that_never_pass_are_counted_by_host_time_at_the_end():
    times, stream = on_gpu()
    step(times, stream, 10.0)
    assert times.take(final=True)["execute_seconds"] == 0.0002


def test_a_stream_that_stands_still_costs_bounded_memory():
    times, stream = on_gpu()
    for _ in range(UNRESOLVED + 100):
        step(times, stream, 1.0)
    assert round(times.execute_seconds / 0.0002) == 100


def test_without_cuda_there_are_no_events():
    assert cuda_events() is None
