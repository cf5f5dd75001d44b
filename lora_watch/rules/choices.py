"""What one may choose of the rules; imported alone it costs nothing, so a command line can offer it."""

from enum import StrEnum


class Install(StrEnum):
    """What Prometheus scrapes."""

    RAW = "raw"  # agents, engines, router and GPU exporters: nothing of the service in the path
    FULL = "full"  # the service's exporter, and what RAW reads for as long as the service does not look


class Profile(StrEnum):
    """Whose limits."""

    DEFAULT = "default"
    ARTICLE = "article"
