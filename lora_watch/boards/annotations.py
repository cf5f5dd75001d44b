"""Marks on every time axis: findings while they were open, and alerts while they fired."""

from typing import NamedTuple

from lora_watch import names
from lora_watch.boards.colours import RED, YELLOW
from lora_watch.boards.scope import of


class Annotation(NamedTuple):
    """A span is marked for as long as the expression has a series."""

    name: str
    colour: str
    expr: str
    title: str
    words: str


FIRING = 'alertstate="firing",lora_watch="true"'
ANNOTATIONS = (
    Annotation(
        "Findings", YELLOW, of(names.OPEN_FINDING), "{{kind}}", "{{severity}} in {{cluster}} {{pool}} {{role}}: {{finding}}"
    ),
    Annotation("Alerts", RED, of(names.ALERTS, further=FIRING), "{{alertname}}", "{{severity}} in {{cluster}} {{pool}} {{role}}"),
)
