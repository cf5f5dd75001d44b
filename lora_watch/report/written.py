"""The report in each of its forms."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from lora_watch.report.as_json import as_json
from lora_watch.report.html import html
from lora_watch.report.markdown import markdown
from lora_watch.report.weekly import WeeklyReport

FORMS: Mapping[str, Callable[[WeeklyReport], str]] = MappingProxyType({"html": html, "md": markdown, "json": as_json})
"""By the ending of a file's name."""
