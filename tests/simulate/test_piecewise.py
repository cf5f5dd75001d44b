"""Pages of pods that are told piece by piece are those of their whole lives, wherever the pieces are cut."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest
from simulate.small import shrunk

from lora_watch import names
from lora_watch.model import DAY, HOUR, MINUTE, SECOND, Window
from lora_watch.simulate.engines import lives, pieces
from lora_watch.simulate.pages import EnginePages, GpuPage, RouterPage, metered, pods_of
from lora_watch.simulate.piecewise import Pod
from lora_watch.simulate.scenario import Scenario
from lora_watch.simulate.traffic import Catalogue, Requests, catalogue, everything

KEEP = 4 * MINUTE
LENGTHS = (MINUTE, 97 * SECOND + 1, 11 * SECOND, 13 * MINUTE)
"""µs, of pieces in turn."""


class Told(NamedTuple):
    scenario: Scenario
    known: Catalogue
    requests: Requests
    whole: list[Pod]
    until: int

    def cut(self) -> Iterator[Window]:
        start, turn = self.scenario.begin, 0
        while start < self.until:
            window = Window(start, min(start + LENGTHS[turn % len(LENGTHS)], self.until))
            yield window
            start, turn = window.end, turn + 1

    def pieces(self) -> Iterator[tuple[Window, list[Pod]]]:
        """The pods after each window."""
        spans = ((w, self.requests[slice(*np.searchsorted(self.requests.at, [w.start, w.end]))]) for w in self.cut())
        pods = {pod.name: Pod(pod.pool, pod.name, len(self.known), KEEP) for pod in self.whole}
        for window, told in pieces(self.scenario, self.known, spans, self.until, 1):
            for life in told:
                pods[f"{life.pool.name}-{life.pod}"].go_on(life, window)
            yield window, list(pods.values())


@pytest.fixture(scope="module", params=[("mixed", 2 * HOUR), ("prefill-decode-mismatch", HOUR // 3)], ids=lambda param: param[0])
def told(request: pytest.FixtureRequest) -> Told:
    name, length = request.param
    scenario = shrunk(name, 2.0).model_copy(update={"days": length / DAY})
    known = catalogue(scenario, 1)
    requests = everything(scenario, known, scenario.days, 1)
    whole = pods_of(metered(list(lives(scenario, known, requests, scenario.days, 1))), known)
    return Told(scenario, known, requests, whole, scenario.begin + length)


def moments(window: Window) -> tuple[int, ...]:
    """Some of the newest window and of those that are kept before it."""
    return window.start, (window.start + window.end) // 2, window.end - 1, max(window.start - MINUTE, window.start - KEEP)


@pytest.mark.parametrize("residency", [None, "vllm-54830", "vllm-45820"])
def test_an_engines_page_is_that_of_its_whole_life(told: Told, residency):
    def page(pod: Pod) -> EnginePages:
        return EnginePages(pod, told.known, residency=residency is not None, upstream=residency or "vllm-54830")

    whole = [page(pod) for pod in told.whole]
    parts: list[EnginePages] = []
    for window, pods in told.pieces():
        parts = parts or [page(pod) for pod in pods]
        for moment in (one for one in moments(window) if one >= told.scenario.begin):
            for one, other in zip(whole, parts, strict=True):
                assert other.at(moment) == one.at(moment)


def test_the_routers_page_is_that_of_whole_lives(told: Told):
    whole = RouterPage(told.scenario, told.known, told.whole)
    for window, pods in told.pieces():
        page = RouterPage(told.scenario, told.known, pods)
        for moment in (one for one in moments(window) if one >= told.scenario.begin):
            assert page.at(moment) == whole.at(moment)


def test_the_gpus_page_is_that_of_whole_lives(told: Told):
    whole = GpuPage(told.scenario, told.known, told.whole, sm_active=True)
    for window, pods in told.pieces():
        page = GpuPage(told.scenario, told.known, pods, sm_active=True)
        for moment in (one for one in moments(window) if one >= told.scenario.begin):
            assert page.at(moment) == whole.at(moment)


def test_behind_what_is_told_a_page_is_that_of_its_end(told: Told):
    window, pods = next(iter(told.pieces()))
    page = EnginePages(pods[0], told.known)
    assert page.at(window.end + MINUTE) == page.at(window.end - 1)


def test_before_anything_is_told_pages_are_empty(told: Told):
    pods = [Pod(pod.pool, pod.name, len(told.known)) for pod in told.whole]
    pages = (
        EnginePages(pods[0], told.known),
        RouterPage(told.scenario, told.known, pods),
        GpuPage(told.scenario, told.known, pods),
    )
    assert [page.at(told.until) for page in pages] == ["", "", ""]


def test_no_more_of_the_past_is_kept_than_was_asked_for(told: Told):
    *_, (window, pods) = told.pieces()
    assert all(process.pieces[0].window.end > window.start - KEEP for process in (pod.processes[-1] for pod in pods))


def test_readers_may_ask_in_any_order(told: Told):
    pod = told.whole[0]
    page, late, early = EnginePages(pod, told.known), told.until - MINUTE, told.scenario.begin + 10 * MINUTE
    fresh = [EnginePages(pod, told.known).at(moment) for moment in (late, early, late)]
    assert [page.at(moment) for moment in (late, early, late)] == fresh
    assert fresh[0].count(f"{names.LORA_REQUESTS_INFO}{{") > fresh[1].count(f"{names.LORA_REQUESTS_INFO}{{")
