"""vLLM: flags of the server, and requests that load adapters ahead."""

from collections.abc import Mapping, Sequence

from lora_watch.recommend.advice import Advice, Kind, Setup
from lora_watch.recommend.targets.output import File, Output
from lora_watch.recommend.targets.text import arguments, body, by_hours, post, script
from lora_watch.recommend.targets.wanted import HOPE, Wanted, sentences, wanted

PORT = 8000
_CANNOT = {
    Kind.PINS: (
        "vLLM takes no pin over HTTP (pin_lora exists in the process only): preload.sh loads these adapters, and the least "
        "recently used leaves again; run it hourly, and do not count on what pins promise"
    ),
    Kind.PRELOAD: HOPE,
    Kind.UNPIN: "a pin set in the process goes with the process: restart the engines that hold it",
    Kind.RETIRE: "retire.sh takes names out of the registry; their weights stay in memory until others push them out",
}


def vllm(setup: Setup, advice: Sequence[Advice], paths: Mapping[str, str]) -> Output:
    """
    ``vllm.args`` with ``--max-loras`` and what goes with it, ``preload.sh`` with one short request for each adapter and pod (a
    request loads an adapter that is registered; the registry needs no path), ``retire.sh`` where names are to go.

    A host cache (``--max-cpu-loras``) is never told smaller than the slots: without it vLLM's default is no warm tier at all.
    """
    del paths
    want = wanted(setup, advice)
    files = []
    if flags := engine_flags(setup, want):
        files.append(File("vllm.args", arguments(*flags) + "\n"))
    if want.loaded:
        loads = [(place, post(place.pod, PORT, "/v1/completions", _short(place.adapter))) for place in want.loaded]
        files.append(
            File("preload.sh", script("Loads adapters ahead with one short request each. Run it hourly.", by_hours(loads)))
        )
    if want.retire:
        lines = ['for pod in "$@"; do', *(_unload(name) for name in want.retire), "done"]
        files.append(File("retire.sh", script("Takes adapters out of the registry. Usage: retire.sh POD:PORT ...", lines)))
    told = sentences(want, _CANNOT, engine="vLLM")
    if want.slots is not None and setup.cpu_capacity is None:
        told.append("--max-cpu-loras is not known and told as the slots: raise it to the number of adapters if memory allows")
    if want.slots is not None:
        told.append("flags change with a restart; each slot takes KV cache (lora-watch plan says how much)")
    return Output(tuple(files), tuple(told))


def engine_flags(setup: Setup, want: Wanted) -> list[str | int]:
    """The flags of ``vllm serve`` that the state needs; none where slots stay as they are."""
    if want.slots is None or want.cpu is None:
        return []
    flags: list[str | int] = ["--enable-lora", "--max-loras", want.slots, "--max-cpu-loras", want.cpu]
    return flags if setup.max_rank is None else [*flags, "--max-lora-rank", setup.max_rank]


def _short(adapter: str) -> dict[str, object]:
    return {"model": adapter, "prompt": "a", "max_tokens": 1}


def _unload(name: str) -> str:
    return f'  post "http://$pod/v1/unload_lora_adapter" {body({"lora_name": name})} || failed=1'
