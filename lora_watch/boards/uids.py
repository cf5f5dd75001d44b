"""The boards' addresses: stable, because links and bookmarks carry them."""

OVERVIEW = "lora-watch-overview"
POD = "lora-watch-pod"
ADAPTER = "lora-watch-adapter"
WATCHER = "lora-watch-watcher"
FOLDER = "lora-watch"
"""The folder of boards and rules."""
