"""Advice as text for engines and controllers: one file per target, all of them listed here. Nothing is ever applied."""

from collections.abc import Mapping

from lora_watch.recommend.targets.aibrix import aibrix
from lora_watch.recommend.targets.kserve import kserve
from lora_watch.recommend.targets.llm_d import llm_d
from lora_watch.recommend.targets.lorax import lorax
from lora_watch.recommend.targets.output import Target
from lora_watch.recommend.targets.production_stack import production_stack
from lora_watch.recommend.targets.sglang import sglang
from lora_watch.recommend.targets.vllm import vllm

TARGETS: Mapping[str, Target] = {
    "vllm": vllm,
    "sglang": sglang,
    "lorax": lorax,
    "kserve": kserve,
    "aibrix": aibrix,
    "production_stack": production_stack,
    "llm_d": llm_d,
}
"""By the name that a command line says."""
