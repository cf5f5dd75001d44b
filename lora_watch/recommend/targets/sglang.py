"""SGLang: pinned loads over HTTP and on the command line, slots, requests that load ahead."""

import json
from collections.abc import Mapping, Sequence

from lora_watch.recommend.advice import Advice, Kind, Place, Setup
from lora_watch.recommend.targets.output import UNKNOWN_PATH, File, Output
from lora_watch.recommend.targets.text import arguments, by_hours, post, script
from lora_watch.recommend.targets.wanted import HOPE, sentences, wanted

PORT = 30_000
_CANNOT = {
    Kind.PRELOAD: HOPE,
    Kind.RETIRE: "adapters to retire: unload them on every pod (/unload_lora_adapter)",
}


def sglang(setup: Setup, advice: Sequence[Advice], paths: Mapping[str, str]) -> Output:
    """
    ``sglang.args`` with ``--max-loras-per-batch``; ``pins.sh`` that loads adapters pinned on their pods; ``pins.args``, the same
    for the next start of one pod each; ``preload.sh`` with one token for each adapter ahead of its hours.

    An adapter that is loaded already has to be unloaded to become pinned, which waits for its requests. SGLang pins at most
    ``max_loras_per_batch`` − 1, and requests for the base model take a slot as well.
    """
    want = wanted(setup, advice)
    files = []
    if want.slots is not None and want.cpu is not None:
        flags = arguments("--enable-lora", "--max-loras-per-batch", want.slots, "--max-loaded-loras", want.cpu)
        files.append(File("sglang.args", flags + "\n"))
    changed = [*((place, True) for place in want.pins), *((place, False) for place in want.unpin)]
    if changed:
        lines = [line for place, pinned in changed for line in _reload(place, paths, pinned=pinned)]
        files.append(File("pins.sh", script("Loads adapters again, pinned or no longer pinned.", lines)))
    if want.pins:
        files.append(File("pins.args", "".join(_start(pod, want.pins, paths) for pod in sorted({one.pod for one in want.pins}))))
    if want.preloads:
        loads = [(place, post(place.pod, PORT, "/generate", _short(place.adapter))) for place in want.preloads]
        files.append(File("preload.sh", script("Loads adapters ahead with one token each. Run it hourly.", by_hours(loads))))
    if want.retire:
        pods = sorted({place.pod for place in (*want.loaded, *want.unpin)})
        lines = [_unload(pod, name) for pod in pods for name in want.retire]
        if lines:
            files.append(File("retire.sh", script("Unloads adapters that nobody asks for.", lines)))
    told = sentences(want, _CANNOT, engine="SGLang")
    if unknown := [place.adapter for place, _ in changed if place.adapter not in paths]:
        told.append(f"{UNKNOWN_PATH} stands for the path of {len(set(unknown))} adapters, which is not known here")
    if changed:
        told.append("servers with data parallelism (dp_size > 1) refuse loads while they run: use pins.args at their start")
    if want.slots is not None:
        told.append(
            "a request for the base model takes a slot too, which no metric counts: one more is needed where there are any"
        )
    return Output(tuple(files), tuple(told))


def _reload(place: Place, paths: Mapping[str, str], *, pinned: bool) -> list[str]:
    return [
        post(place.pod, PORT, "/unload_lora_adapter", {"lora_name": place.adapter}, optional=True),
        post(place.pod, PORT, "/load_lora_adapter", _load(place.adapter, paths, pinned=pinned)),
    ]


def _load(adapter: str, paths: Mapping[str, str], *, pinned: bool) -> dict[str, object]:
    return {"lora_name": adapter, "lora_path": paths.get(adapter, UNKNOWN_PATH), "pinned": pinned}


def _start(pod: str, pins: Sequence[Place], paths: Mapping[str, str]) -> str:
    """The pod's name and its flag, as one line of shell words."""
    loads = [json.dumps(_load(place.adapter, paths, pinned=True)) for place in pins if place.pod == pod]
    return arguments(json.dumps(pod), "--lora-paths", *loads) + "\n"


def _unload(pod: str, name: str) -> str:
    return post(pod, PORT, "/unload_lora_adapter", {"lora_name": name})


def _short(adapter: str) -> dict[str, object]:
    return {"text": "a", "lora_path": adapter, "sampling_params": {"max_new_tokens": 1}}
