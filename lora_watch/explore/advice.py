"""What ``lora-watch recommend`` asks: the stored weeks of each pool, read, replayed and judged."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from lora_watch.config import Settings
from lora_watch.errors import NotEnoughHistory
from lora_watch.explore.expect import announced_in
from lora_watch.explore.history import Pool, held
from lora_watch.explore.queries import newest
from lora_watch.explore.status import window_of
from lora_watch.model import SECOND, Window
from lora_watch.recommend.advice import Recommendation
from lora_watch.recommend.recommend import Prices, recommend
from lora_watch.recommend.sizing import PRESETS, kv_bytes_per_token
from lora_watch.store.tables import Store


@dataclass(frozen=True, slots=True)
class Advised:
    """A pool's recommendation, and from where its adapters are loaded, as far as told."""

    pool: Pool
    recommendation: Recommendation
    paths: Mapping[str, str]


Told = Callable[[str, float], None]
"""Is told what is worked on, and the share of the whole that is done."""
READING = 0.25
"""The share of the work that reading is."""


def window_until(store: Store, last: str, at: str | None, now: int) -> Window:
    """The window that ends where told, else where the data end. NotEnoughHistory where nothing is stored."""
    length, end = window_of(last, at)
    end = newest(store, now) if end is None else end
    if end is None:
        raise NotEnoughHistory(f"nothing is stored yet in {store.root}: is `lora-watch serve` running?")
    return Window(max(end - length, 0), end)


def advised(
    store: Store,
    window: Window,
    settings: Settings,
    *,
    pool: str | None = None,
    engine: str | None = None,
    told: Told = lambda _what, _share: None,
) -> Iterator[Advised]:
    """
    A recommendation for each pool with requests in the window, the busiest first; of them those called ``pool``, if told. One of
    which too little is held comes last and advises nothing: its sentence says what is missing. ``engine`` is what the pods run,
    where nobody records it or it is to be another: what can be done, and how, depends on it.

    NotEnoughHistory where that is so of all of them, StoreError where a table can't be read.
    """
    short: list[Advised] = []
    given, missing = 0, ""
    expected = announced_in(settings.diagnose.expected)
    lookback = round(settings.derive.lookback.total_seconds() * SECOND)
    read = held(
        store, window, lookback=lookback, pool=pool, expected=expected, told=lambda share: told("reading", share * READING)
    )
    for one in read:
        name = one.setup.pool or "the pool"
        whose, setup, paths = one.pool, one.setup, one.paths
        if engine is not None and engine != setup.engine:
            setup = replace(setup, engine=engine, version=None)
        try:
            found = recommend(
                one.history,
                setup,
                prices=prices_of(settings, setup.base_model),
                told=lambda what, share: told(f"{name}: {what}", READING + share * (1 - READING)),  # noqa: B023 - called at once
            )
        except NotEnoughHistory as error:
            missing = missing or str(error)
            nothing = Recommendation(setup, window, f"Nothing is advised: {error}.", (), None, gaps=one.history.gaps)
            short.append(Advised(whose, nothing, paths))
            continue
        given += 1
        del one  # a month of the next pool needs its room
        yield Advised(whose, found, paths)
    if not given:
        raise NotEnoughHistory(missing)
    yield from short


def prices_of(settings: Settings, model: str | None) -> Prices:
    """What advice costs, as far as the configuration and the model's name tell."""
    cost = settings.cost
    return Prices(cost.gpus_per_pod, cost.gpu_hour_price, cost.currency, token_bytes_of(model))


def token_bytes_of(model: str | None) -> int | None:
    """
    KV-cache bytes of a token of a model whose shape is known by its name; None of others.

    >>> token_bytes_of("meta-llama/Llama-3.1-70B-Instruct"), token_bytes_of("mine")
    (327680, None)
    """
    named = (model or "").casefold()
    shape = next((shape for name, shape in PRESETS.items() if name in named), None)
    return None if shape is None else kv_bytes_per_token(shape)
