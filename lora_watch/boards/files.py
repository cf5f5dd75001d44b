"""Which files are rendered, and what is in each."""

from collections.abc import Callable, Mapping

from lora_watch.boards import adapter, overview, pod, watcher
from lora_watch.boards.draw import text
from lora_watch.boards.panel import Board

BOARDS: tuple[Board, ...] = (overview.BOARD, pod.BOARD, adapter.BOARD, watcher.BOARD)


def path_of(board: Board) -> str:
    """Where a board's file lies in the checkout."""
    return f"grafana/dashboards/{board.uid.removeprefix('lora-watch-')}.json"


def _board(board: Board) -> Callable[[str], str]:
    return lambda _before: text(board)


FILES: Mapping[str, Callable[[str], str]] = {path_of(board): _board(board) for board in BOARDS}
"""Path in the checkout → what the file should be, given what it is."""
