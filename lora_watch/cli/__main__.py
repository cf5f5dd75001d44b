"""``python -m lora_watch.cli``."""

from lora_watch.cli import main

main()
