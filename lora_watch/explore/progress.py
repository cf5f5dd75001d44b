"""A bar on standard error while something takes its time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from lora_watch.diagnose.words import named


@contextmanager
def bar(what: str, console: Console | None = None) -> Iterator[Callable[[str, float], None]]:
    """
    A bar that is told what is worked on and the share of the whole that is done; gone at the end. Nothing is drawn where standard
    error is no terminal.
    """
    console = console or Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(escape(what), total=1.0)
        yield lambda now, share: progress.update(task, description=escape(named(now)), completed=share)
