"""Which pods to read: a fixed list, and files in the format of Prometheus' ``file_sd``."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from lora_watch.model import PodId
from lora_watch.sources.base import printable
from lora_watch.sources.http import NO_CREDENTIALS, Credentials

_MAX_FILE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Target:
    """
    One pod: who it is, and where its engine (``metrics_url``) and its agent's sidecar (``agent_url``) answer; "" is nowhere.
    """

    cluster: str
    pod: str
    pool: str = ""
    role: str = ""
    metrics_url: str = ""
    agent_url: str = ""
    credentials: Credentials = NO_CREDENTIALS

    @property
    def pod_id(self) -> PodId:
        """The pod a row is about."""
        return PodId(self.cluster, self.pod, self.pool, self.role)


class _Group(msgspec.Struct):
    """One entry of a ``file_sd`` file."""

    targets: list[str]
    labels: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class TargetFiles:
    """
    Files to look at, and what they leave open.

    ``paths`` may have ``*`` in the last part. An entry of a file is ``{"targets": ["host:port", …], "labels": {…}}``; the labels
    read are ``cluster``, ``pool``, ``role``, ``pod`` (default host:port; only useful with one target an entry), ``agent_url``,
    and Prometheus' ``__scheme__`` and ``__metrics_path__``. ``agent_port`` is where the sidecar of each host listens, 0 where
    there is none: then only ``agent_url`` counts.
    """

    paths: Sequence[str]
    cluster: str = "default"
    pool: str = ""
    role: str = ""
    agent_port: int = 0
    credentials: Credentials = NO_CREDENTIALS


class Targets:
    """
    All targets: the fixed ones and those of the files, which are read again when they changed.

    A file that cannot be read keeps what it last held, and is a problem each time until it is right. Two targets of one cluster
    and pod: the first counts, the second is refused and both places are named.
    """

    def __init__(self, fixed: Iterable[Target] = (), files: Iterable[TargetFiles] = ()) -> None:
        self._fixed = tuple(fixed)
        self._files = tuple(files)
        self._held: dict[Path, tuple[tuple[int, int, int], tuple[tuple[str, Target], ...], str]] = {}

    def read(self) -> tuple[tuple[Target, ...], tuple[str, ...]]:
        """The targets now, and what is wrong with their places."""
        placed = [(f"fixed target {number}", target) for number, target in enumerate(self._fixed, 1)]
        problems: list[str] = []
        for files in self._files:
            for path in _paths(files.paths, problems):
                found, problem = self._read_file(path, files)
                placed += found
                problems += [problem] if problem else []
        kept: dict[tuple[str, str], tuple[str, Target]] = {}
        for place, target in placed:
            first = kept.setdefault((target.cluster, target.pod), (place, target))
            if first[0] != place or first[1] is not target:
                problems.append(
                    f"pod {printable(target.pod)} of cluster {printable(target.cluster)} is in {place}, but {first[0]} has it: "
                    "the first one counts; give one of them another pod label"
                )
        return tuple(target for _, target in kept.values()), tuple(problems)

    def _read_file(self, path: Path, files: TargetFiles) -> tuple[tuple[tuple[str, Target], ...], str]:
        """What the file holds, or last held, and its problem or ""."""
        _, held, problem = self._held.get(path, ((0, 0, 0), (), ""))
        try:
            state = path.stat()
            stamp = (state.st_mtime_ns, state.st_size, state.st_ino)
            if path in self._held and self._held[path][0] == stamp:
                return held, problem
            if state.st_size > _MAX_FILE_BYTES:
                raise ValueError(f"larger than {_MAX_FILE_BYTES} bytes")
            held, problem = tuple(_entries(path, files)), ""
        except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
            stamp = (0, 0, 0) if isinstance(error, OSError) else stamp
            reason = error.strerror if isinstance(error, OSError) else _first_line(error)
            problem = f"target file {path}: {reason}; the last good targets ({len(held)}) stay"
        self._held[path] = (stamp, held, problem)
        return held, problem


def _first_line(error: Exception) -> str:
    return printable((str(error) or type(error).__name__).splitlines()[0], 200)


def _paths(patterns: Sequence[str], problems: list[str]) -> list[Path]:
    """The files named, those of a pattern in the order of their names."""
    paths: list[Path] = []
    for pattern in patterns:
        path = Path(pattern)
        if "*" not in path.name:
            paths.append(path)
        elif found := sorted(path.parent.glob(path.name)):
            paths += found
        else:
            problems.append(f"no target file matches {pattern}")
    return paths


def _entries(path: Path, files: TargetFiles) -> Iterable[tuple[str, Target]]:
    """Each target of a file with its place; ValueError says what is wrong with the file."""
    data = path.read_bytes()
    loaded: Any = msgspec.json.decode(data) if path.suffix == ".json" else yaml.safe_load(data)
    for number, group in enumerate(msgspec.convert([] if loaded is None else loaded, list[_Group]), 1):
        for address in group.targets:
            if "/" in address or not address.strip():
                raise ValueError(f"entry {number}: target {printable(address)} is not host:port")
            yield f"{path} entry {number}", _target(address, group.labels, files)


def _target(address: str, labels: Mapping[str, str], files: TargetFiles) -> Target:
    host = address.rpartition(":")[0] or address
    agent_url = labels.get("agent_url") or (f"http://{host}:{files.agent_port}" if files.agent_port else "")
    return Target(
        cluster=labels.get("cluster", files.cluster),
        pod=labels.get("pod", address),
        pool=labels.get("pool", files.pool),
        role=labels.get("role", files.role),
        metrics_url=f"{labels.get('__scheme__', 'http')}://{address}{labels.get('__metrics_path__', '/metrics')}",
        agent_url=agent_url,
        credentials=files.credentials,
    )
