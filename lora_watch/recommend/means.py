"""What an engine can be told, and how: a change that nobody can make is no advice."""

from lora_watch.recommend.advice import Kind, Setup

Means = tuple[bool | None, str]
"""Whether it can be done (None: unknown), and how, or why not."""
_UNKNOWN = "the engine is not known: look it up in its documentation"
_RESTART = "a rolling restart"


def means(kind: Kind, setup: Setup, amount: int = 0) -> Means:
    """
    How this engine is told of a change; ``amount`` is the number of slots or pods there are to be.

    vLLM 0.32 takes slots at its start only, and pins over no interface for production; SGLang takes pins with the load call.

    >>> means(Kind.SLOTS, Setup("chat", engine="vllm", slots=4), 5)
    (True, '--max-loras 5, with a rolling restart')
    """
    told = _ANYWHERE.get(kind) or _BY_ENGINE.get((setup.engine or "", kind))
    if told is None:
        return None, _UNKNOWN if setup.engine is None else f"nothing is known of how {setup.engine} is told"
    can, how = told
    return can, how.format(amount=amount, restart=_RESTART, slots=setup.slots or "N")


_ANYWHERE: dict[Kind, Means] = {
    Kind.RETIRE: (True, "take its name out of what starts the pods, or unload it; its files can stay"),
    Kind.MERGE: (True, "ask its owners; then send its requests under the other's name"),
    Kind.CAP: (True, "in what starts experiments: a limit there, and names that are withdrawn when one ends"),
    Kind.SPLIT: (True, "a pool of its own for each (with llm-d: an InferencePool and a route by model name)"),
    Kind.GROUPS: (None, "by a route that sends the names of a group to one pod; no released scorer knows of groups"),
    Kind.ROUTING: (None, "in the router's own configuration"),
    Kind.PODS: (True, "replicas of the deployment: {amount}"),
}
_BY_ENGINE: dict[tuple[str, Kind], Means] = {
    ("vllm", Kind.SLOTS): (True, "--max-loras {amount}, with {restart}"),
    ("sglang", Kind.SLOTS): (True, "--max-loras-per-batch {amount}, with {restart}"),
    ("lorax", Kind.SLOTS): (
        True,
        "LoRAX counts bytes: --adapter-memory-fraction up by what the slots take, --max-active-adapters {amount}, with {restart}",
    ),
    ("vllm", Kind.PINS): (
        False,
        "vLLM pins inside the engine only (pin_lora; over HTTP in its insecure development mode): a slot more does it",
    ),
    ("sglang", Kind.PINS): (True, "POST /load_lora_adapter with `pinned`, or --lora-paths with it at the start"),
    ("lorax", Kind.PINS): (False, "LoRAX preloads adapters at its start, and may offload them later"),
    ("vllm", Kind.UNPIN): (True, "take the pin out of what sets it (vLLM has no call for it over HTTP), then {restart}"),
    ("sglang", Kind.UNPIN): (True, "POST /unload_lora_adapter, then load it again without `pinned`"),
    ("vllm", Kind.PRELOAD): (
        False,
        "vLLM can load an adapter ahead (one short request for it to the pod), but has no pin over HTTP that would keep it",
    ),
    ("sglang", Kind.PRELOAD): (True, "POST /load_lora_adapter with `pinned` when it begins, /unload_lora_adapter when it ends"),
    ("lorax", Kind.UNPIN): (True, "leave it out of --preloaded-adapter-ids, with {restart}"),
    ("lorax", Kind.PRELOAD): (False, "LoRAX preloads at its start only"),
}
