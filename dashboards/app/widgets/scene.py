"""What a page is about: the store, the window, whom it is of; and the answers it waits for."""

import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import CancelledError, Future, wait
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from os import environ
from typing import Any, TypeVar

import polars as pl
import streamlit as st

from lora_watch.config import Settings
from lora_watch.errors import LoraWatchError
from lora_watch.explore.answers import Answers
from lora_watch.explore.extent import data_end, pools_of
from lora_watch.explore.looks import Looks
from lora_watch.explore.opened import Opened, opened
from lora_watch.explore.view import View, read
from lora_watch.model import DAY, MINUTE, Window
from lora_watch.store.tables import Store
from widgets import notes, questions
from widgets.questions import Question

T = TypeVar("T")
PATIENCE_SECONDS = 0.3
"""So long a run waits for answers, all together, before it draws the rest of the page without."""
AS_GOOD = 2 * MINUTE
"""An answer that is so old (µs) stands there until the next one is ready."""
_VIEW, _WRITTEN, _PROBLEMS, _AWAITED, _END, _PATIENT = (
    f"lw_{name}" for name in ("view", "written", "problems", "awaited", "end", "patient_until")
)


@dataclass(frozen=True)
class Scene:
    """
    One page in one run: what it is asked to show, of which data.

    ``store`` holds the chosen pods only, ``whole`` all of them. ``window`` is what the view means now that the data end at
    ``end`` (µs UTC).
    """

    view: View
    window: Window
    end: int
    store: Store
    whole: Store
    lookback: int
    settings: Settings
    _pods: Hashable = field(default=None)

    @property
    def chosen(self) -> pl.Expr | None:
        """Which rows are about the chosen pods; None: all."""
        return self.view.pods_where()

    def last(self, length: int) -> Window:
        """The last ``length`` µs of the window, or all of a shorter one."""
        return Window(max(self.window.start, self.window.end - length), self.window.end)

    def ask(self, question: Question[T]) -> Future[T]:
        """The answer or the promise of it; nothing is drawn."""
        pods = None if question.everywhere else self._pods
        slot = (question.name, str(self.store.root), pods, question.key, question.window)
        return answers().ask(slot, lambda: question.answer(*question.given))

    def told(self, question: Question[T]) -> T | None:
        """
        The answer, worked out in the background and kept; None while there is none, or where it failed: that is drawn.

        While the window moves on, the last answer to the same question stands there in place of the next, whoever asked it.
        """
        slot = (question.name, str(self.store.root), None if question.everywhere else self._pods, question.key, self.view.last)
        promised = self.ask(question)
        try:
            told = promised.result(timeout=_patience())
        except NotYet:
            st.session_state[_AWAITED].append(promised)
            before = answers().newest(slot) if self.view.span is None else None
            if before is not None and 0 <= question.window.end - before[0] <= AS_GOOD:
                if before[0] != question.window.end:
                    notes.older(before[0], question.of or question.name)
                return before[1]  # type: ignore[no-any-return]  # what this very question gave a moment ago
            notes.waiting(question.of or question.name)
            return None
        except CancelledError:
            notes.waiting(question.of or question.name)
            return None
        except LoraWatchError as error:
            notes.trouble(str(error))
            return None
        if self.view.span is None:
            answers().keep(slot, question.window.end, told)
        return told

    def later(
        self,
        name: str,
        answer: Callable[..., T],
        *given: Any,
        key: Hashable = None,
        window: Window | None = None,
        of: str = "",
    ) -> T | None:
        """
        The same of a question of this page alone: ``answer(*given)``. ``key`` is whatever it depends on beside the store, the
        pods and the ``window`` (the whole, unless told).
        """
        return self.told(Question(name, answer, given, window or self.window, key, of))

    def parts(self, asked: Sequence[Question[T]]) -> list[T]:
        """
        The answers about the parts of a window, as far as they are there, in their order; the last part is asked for first. That
        some are still being read is drawn.
        """
        promised = [self.ask(one) for one in reversed(asked)][::-1]
        wait(promised[-1:], timeout=_patience())
        told, missing = [], 0
        for answer in promised:
            if not answer.done():
                st.session_state[_AWAITED].append(answer)
                missing += 1
                continue
            try:
                told.append(answer.result())
            except CancelledError:
                missing += 1
            except LoraWatchError as error:
                notes.trouble(str(error))
        if missing:
            notes.waiting(f"{asked[0].of or asked[0].name}: {missing} of {len(asked)} parts are to come")
        return told


def begin() -> None:
    """Read the address; the first thing of a run."""
    st.session_state[_AWAITED] = []
    st.session_state[_PATIENT] = time.monotonic() + PATIENCE_SECONDS
    asked = {key: st.query_params.get_all(key) for key in st.query_params}
    if _VIEW not in st.session_state or (asked and asked != st.session_state.get(_WRITTEN)):
        chosen, problems = read(asked)
        change(chosen)
        st.session_state[_PROBLEMS] = problems
    else:
        _write(view())
    for problem in st.session_state[_PROBLEMS]:
        notes.trouble(problem)


def change(chosen: View) -> None:
    """Show this view from now on; the address follows."""
    st.session_state[_VIEW] = chosen
    st.session_state[_PROBLEMS] = ()
    _write(chosen)


def _patience() -> float:
    """Seconds that this run still waits for an answer."""
    until: float = st.session_state[_PATIENT]
    return max(until - time.monotonic(), 0.0)


def _write(chosen: View) -> None:
    st.session_state[_WRITTEN] = chosen.query()
    if {key: st.query_params.get_all(key) for key in st.query_params} != chosen.query():
        st.query_params.from_dict(chosen.query())


def view() -> View:
    """What is asked for."""
    chosen: View = st.session_state[_VIEW]
    return chosen


def awaited() -> list[Future[Any]]:
    """Answers that this run went on without."""
    promised: list[Future[Any]] = st.session_state[_AWAITED]
    return promised


@st.cache_resource(show_spinner=False, max_entries=8)
def answers() -> Answers:
    """The answers, one lot for all who look."""
    return Answers()


@st.cache_resource(show_spinner=False, max_entries=8)
def source(variables: tuple[tuple[str, str], ...]) -> Opened:
    """The store that the environment's variables name."""
    return opened(dict(variables))


def told() -> Opened:
    """The store that is shown. LoraWatchError where none is named, or the configuration is wrong."""
    return source(tuple((key, value) for key, value in sorted(environ.items()) if key.startswith("LORA_WATCH_EXPLORE_")))


@st.cache_resource(show_spinner=False, max_entries=4)
def _looks(root: str) -> Looks:
    known = told()
    assert root == str(known.store.root)
    return Looks(known.store, known.lookback, known.settings.diagnose)


def looks() -> Looks:
    """Who looks for findings, one for all who ask."""
    return _looks(str(told().store.root))


@st.cache_data(ttl=5, max_entries=8, show_spinner=False)
def _end_of(root: str) -> int | None:
    return data_end(Store(root), now())


def end_of_data() -> int | None:
    """Where the stored data end; looked up every few seconds."""
    return _end_of(str(told().store.root))


def end() -> int | None:
    """Where they ended when this run began."""
    at: int | None = st.session_state.get(_END)
    return at


def now() -> int:
    """The wall's clock, µs UTC."""
    return time.time_ns() // 1000


def scene() -> Scene:
    """What a page is about. Where there is nothing to show, that is said, and the page ends."""
    try:
        known = told()
        at = end_of_data()
    except LoraWatchError as error:
        notes.trouble(str(error))
        st.stop()
    st.session_state[_END] = at
    if at is None:
        notes.empty(known.store.root)
        st.stop()
    return scene_of(known, view(), at)


def scene_of(known: Opened, chosen: View, at: int) -> Scene:
    """What a page of a view would be about where the data end at ``at`` (µs UTC)."""
    whole = Scene(chosen, chosen.window(at), at, known.store, known.store, known.lookback, known.settings, ((), (), (), ()))
    if chosen.pods_where() is None:
        return whole
    told = whole.ask(questions.pools(whole))
    if told.done():
        with suppress(LoraWatchError, CancelledError):  # then nobody is known to be left out: the choice stands
            chosen = chosen.beside(pl.concat([told.result(), _pools_since(str(known.store.root), at)]))
    where = chosen.pods_where()
    if where is None:
        return whole
    pods = (chosen.cluster, chosen.pool, chosen.role, chosen.pod)
    return replace(whole, store=known.store.part(where=where), _pods=pods)


@st.cache_data(ttl=60, max_entries=8, show_spinner=False)
def _pools_since(root: str, at: int) -> pl.DataFrame:
    """The pools of the last day."""
    return pools_of(Store(root), Window(max(at - at % DAY - 1, 0), at))
