"""The harm that dashboards hide: GPUs that read busy, and do little that is inference."""

from datetime import timedelta

from lora_watch import names
from lora_watch.rules.condition import Clause, Compare, Condition
from lora_watch.rules.pace import Pace
from lora_watch.rules.pods import EACH_POD, ENGINES, POD, POOL, SPAN
from lora_watch.rules.rule import Alert, Recording, Severity, Tier
from lora_watch.rules.say import number, percent
from lora_watch.rules.thresholds import GPU_BUSY, INFERENCE_LOW, LASTS, LOADING_HIDDEN


def recordings(pace: Pace) -> tuple[Recording, ...]:
    """Time in inference by the agent's clock, and what the GPU exporter shows."""
    span = pace.span(SPAN)

    def shown(metric: str) -> str:
        # one value a pod before the label is rewritten: a GPU exporter that was replaced is another series of the same GPU
        named = f'avg by (cluster, exported_pod) (avg_over_time({metric}{{exported_pod!=""}}[{span}]))'
        plain = f'avg by (cluster, pod) (avg_over_time({metric}{{exported_pod=""}}[{span}]))'
        return f'avg by (cluster, pod) (label_replace({named}, "pod", "$1", "exported_pod", "(.+)") or {plain})'

    busy = f"({shown(names.GPU_UTIL)} / 100 or {shown(names.GPU_ENGINE_ACTIVE)})"
    return (
        Recording(
            names.POD_INFERENCE_RECORD,
            "Share of time in inference: execute less adapter seconds over wall; of an interval the upper end",
            raw=f"(sum by ({POD}) ({pace.rate(names.AGENT_EXECUTE_SECONDS, SPAN)})"
            f" - sum by ({POD}) ({pace.rate(names.AGENT_ADAPTER_SECONDS, SPAN)})) / on ({POD}) {ENGINES}",
            full=f"max by ({POD}) ({names.RECENT_INFERENCE_SHARE})",
        ),
        Recording(
            names.POD_GPU_BUSY_RECORD,
            "Share of time that a pod's GPUs read busy, whatever with: what dashboards and autoscalers see",
            raw=f"{busy}\n* on (cluster, pod) group_right () {EACH_POD}",
            full=f"max by ({POD}) ({names.RECENT_GPU_BUSY})",
        ),
        Recording(
            names.POOL_INFERENCE_RECORD,
            "Share of time in inference, mean of the pods",
            both=f"avg by ({POOL}) ({names.POD_INFERENCE_RECORD})",
        ),
        Recording(
            names.POOL_GPU_BUSY_RECORD,
            "Share of time that GPUs read busy, mean of the pods",
            both=f"avg by ({POOL}) ({names.POD_GPU_BUSY_RECORD})",
        ),
        Recording(
            names.POOL_NOT_INFERRING_RECORD,
            "Busy less inference: by how much the dashboard is wrong, mean of the pods that have both",
            both=f"avg by ({POOL}) (clamp_min({names.POD_GPU_BUSY_RECORD} - on ({POD}) {names.POD_INFERENCE_RECORD}, 0))",
        ),
    )


def alerts() -> tuple[Alert, ...]:
    """One."""
    return (
        Alert(
            "LoraGpuBusyNotInferring",
            Severity.PAGE,
            Tier.HARM,
            Condition(
                (
                    Clause(
                        Compare(names.POOL_INFERENCE_RECORD, "<", INFERENCE_LOW),
                        also=(
                            Compare(names.POOL_GPU_BUSY_RECORD, ">", GPU_BUSY),
                            Compare(names.POOL_LOADING_RECORD, ">", LOADING_HIDDEN),
                        ),
                    ),
                ),
                timedelta(minutes=5),
                LASTS,
            ),
            summary="GPUs of pool {{ $labels.pool }} read "
            f"{percent(names.POOL_GPU_BUSY_RECORD)} busy, but only "
            f"{percent(names.POOL_INFERENCE_RECORD)} of the time goes into inference: "
            f"{percent(names.POOL_LOADING_RECORD)} goes into adapter loads "
            f"({number(names.POOL_SWAPS_RECORD, 2)} swaps/s per pod).",
            findings=("thrash", "saturation"),
        ),
    )
