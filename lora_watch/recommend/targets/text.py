"""How names get safely into shell, YAML and Kubernetes: each by one function."""

import hashlib
import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import yaml

from lora_watch.recommend.advice import Place

LONGEST_LABEL = 63
"""Characters of a name that RFC 1123 allows."""
_VALID = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_HASHED = re.compile(r".*-[0-9a-f]{16}")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?")


def kubernetes_name(name: str) -> str:
    """
    A name as Kubernetes allows it (RFC 1123 label): itself where it is one, else what is left of it and a hash of the whole, so
    that two names never become one.

    >>> kubernetes_name("legal-v2"), kubernetes_name("Legal v2")
    ('legal-v2', 'legal-v2-f83a16c4bf1d9ed0')
    """
    if len(name) <= LONGEST_LABEL and _VALID.fullmatch(name) and not _HASHED.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    start = re.sub(r"[^a-z0-9]+", "-", name[:1000].lower()).strip("-")[: LONGEST_LABEL - 17].strip("-")
    return f"{start or 'adapter'}-{digest}"


def as_yaml(*documents: Mapping[str, Any]) -> str:
    """Documents as YAML, each safe to read back, whatever is in its strings."""
    return yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=False, width=1_000_000)


def arguments(*words: str | int) -> str:
    """
    A line of arguments for a shell, each quoted.

    >>> arguments("--max-loras", 5, "a b")
    "--max-loras 5 'a b'"
    """
    return shlex.join(str(word) for word in words)


def body(tree: Mapping[str, Any]) -> str:
    """A request's JSON in ASCII, quoted for a shell: a line break in a name is two characters of it."""
    return shlex.quote(json.dumps(tree))


def address(pod: str, port: int) -> str:
    """
    Where a pod listens, quoted for a shell: its name as the host, with a port where the name has none.

    >>> address("vllm-0", 8000), address("10.0.0.7:9000", 8000), address("$(x)", 8000)
    ('http://vllm-0:8000', 'http://10.0.0.7:9000', 'http://%24%28x%29:8000')
    """
    if not _HOST.fullmatch(pod):
        return shlex.quote(f"http://{quote(pod, safe='', errors='surrogatepass')}:{port}")
    return f"http://{pod}" if ":" in pod else f"http://{pod}:{port}"


def script(purpose: str, lines: Iterable[str]) -> str:
    """A shell script of these lines; ``purpose`` is a sentence of ours, never anybody's name."""
    start = [
        "#!/bin/sh",
        f"# {purpose}",
        "# Written as advice: read it, then run it by hand. Names of pods stand for their addresses.",
        "set -u",
        'post() { curl -fsS -m 300 -o /dev/null -H \'Content-Type: application/json\' --globoff --data-raw "$2" "$1"; }',
        "failed=0",
    ]
    return "\n".join([*start, *lines, 'exit "$failed"']) + "\n"


def post(pod: str, port: int, path: str, tree: Mapping[str, Any], *, optional: bool = False) -> str:
    """A line that posts to a pod; one that fails is counted and stops nothing, an ``optional`` one is not even counted."""
    return f"post {address(pod, port)}{path} {body(tree)} || {':' if optional else 'failed=1'}"


def by_hours(lines: Sequence[tuple[Place, str]]) -> list[str]:
    """
    Lines that run always, or in the hours of the week of their place (0: Monday 00:00 UTC): run hourly, the script picks those of
    now; its first argument, an hour of the week, stands for now.
    """
    told = [line for place, line in lines if not place.hours]
    hours = sorted({hour for place, _ in lines for hour in place.hours})
    if not hours:
        return told
    told.append('hour="${1:-$(( ($(date -u +%u) - 1) * 24 + $(date -u +%H | sed s/^0//) ))}"')
    told.append('case "$hour" in')
    for hour in hours:
        told.append(f"{hour})")
        told += [f"  {line}" for place, line in lines if hour in place.hours]
        told.append("  ;;")
    told.append("esac")
    return told
