"""LoRAX: adapters that every replica loads when it starts."""

from collections.abc import Mapping, Sequence

from lora_watch.recommend.advice import Advice, Kind, Setup
from lora_watch.recommend.targets.output import File, Output
from lora_watch.recommend.targets.text import arguments
from lora_watch.recommend.targets.wanted import sentences, wanted

_CANNOT = {
    Kind.PINS: "LoRAX knows no pin: adapters loaded at the start are the first there, and may be offloaded like any other",
    Kind.PRELOAD: "LoRAX loads ahead when it starts, not by the hour",
    Kind.SLOTS: "LoRAX counts bytes, not slots: raise --adapter-memory-fraction (0.1 by default) by as much as slots would take",
    Kind.UNPIN: "adapters to unpin: leave them out of --preloaded-adapter-ids, as lorax.args does",
    Kind.RETIRE: "LoRAX loads whatever is asked for: an adapter that nobody asks for costs nothing there",
}


def lorax(setup: Setup, advice: Sequence[Advice], paths: Mapping[str, str]) -> Output:
    """
    ``lorax.args``: ``--preloaded-adapter-ids`` once for each adapter that is pinned or loaded ahead anywhere; its path where it
    is known, for LoRAX names adapters by it.
    """
    want = wanted(setup, advice)
    names = sorted(want.loads_on())
    ids = [paths.get(name, name) for name in names]
    flags = [f"--preloaded-adapter-ids={one}" for one in ids if "\0" not in one]
    told = sentences(want, _CANNOT, engine="LoRAX")
    if len(flags) < len(ids):
        told.append(f"left out, for no command line can hold them: names with a zero byte, {len(ids) - len(flags)} of them")
    if names:
        told.append("every replica loads the same adapters: which pod an adapter belongs to cannot be told")
    return Output((File("lorax.args", arguments(*flags) + "\n"),) if flags else (), tuple(told))
