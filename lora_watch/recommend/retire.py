"""Names that are served and that nobody asks for."""

from collections.abc import Iterator

from lora_watch.model import DAY
from lora_watch.recommend.advice import Advice, Effect, Kind, Setup, Verdict
from lora_watch.recommend.means import means
from lora_watch.recommend.trial import Trial

LEAST = 7 * DAY
"""In a shorter history a name without a request may only be rare."""


def advise_retire(trial: Trial, setup: Setup) -> Iterator[Advice]:
    """
    The registered names without a request in the whole history. No replay can tell what that saves: what nobody asks for takes
    no slot. None where nobody told what is registered, or the history is short.
    """
    history = trial.history
    if history.registered is None or history.window.end - history.window.start < LEAST:
        return
    unused = sorted(set(history.registered) - set(history.names))
    if not unused:
        return
    can, how = means(Kind.RETIRE, setup)
    yield Advice(
        Kind.RETIRE,
        Verdict.UNPROVEN,
        f"retire {len(unused)} registered {'adapter' if len(unused) == 1 else 'adapters'}",
        f"no request for {'it' if len(unused) == 1 else 'them'} in {history.days} days, and every pod may be asked for any name",
        Effect(None, None, None, None, int(trial.base.swaps.sum())),
        history.window,
        None,
        "the registry beside the requests; no replay: what nobody asks for takes no slot",
        "nothing",
        "a batch job that runs once a quarter would find its name gone",
        can,
        how,
        len(unused),
        tuple(unused),
        (),
        history.provenance,
    )
