"""lora_watch: which LoRA adapters sit on the GPU, what swapping them costs, and when an LLM cluster thrashes."""

__version__ = "0.1.0"
