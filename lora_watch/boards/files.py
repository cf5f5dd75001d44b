"""Which files are rendered, and what is in each."""

from collections.abc import Callable, Mapping
from functools import partial

from lora_watch.boards import adapter, overview, pod, provisioning, watcher
from lora_watch.boards.draw import text
from lora_watch.boards.panel import Board

BOARDS: tuple[Board, ...] = (overview.BOARD, pod.BOARD, adapter.BOARD, watcher.BOARD)


def path_of(board: Board) -> str:
    """Where a board's file lies in the checkout."""
    return f"grafana/dashboards/{board.uid.removeprefix('lora-watch-')}.json"


def _whole(make: Callable[[], str]) -> Callable[[str], str]:
    return lambda _before: make()


FILES: Mapping[str, Callable[[str], str]] = {
    **{path_of(board): _whole(partial(text, board)) for board in BOARDS},
    **{
        f"grafana/provisioning/{name}.yaml": _whole(make)
        for name, make in (
            ("datasources/lora-watch", provisioning.datasource),
            ("dashboards/lora-watch", provisioning.dashboards),
            ("alerting/rules", provisioning.rules),
            ("alerting/contact-points", provisioning.contact_points),
            ("alerting/policies", provisioning.policies),
            ("alerting/mute-times", provisioning.mute_times),
        )
    },
}
"""Path in the checkout → what the file should be, whatever it is."""
