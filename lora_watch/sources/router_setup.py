"""The configuration of llm-d's Endpoint Picker (``EndpointPickerConfig``): which scorers its profiles run."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lora_watch.errors import ConfigError

KIND = "EndpointPickerConfig"
BROKEN_YAML = (yaml.YAMLError, RecursionError, ValueError, KeyError, AttributeError)
"""What the parser raises; it lets through what Python makes of a value that is not what its tag says."""
MAX_WEIGHT = 1e9
"""No weight is as large; what is no number is not below it either."""
DEFAULT_SCORERS: Mapping[str, float] = {
    "queue-scorer": 2.0,
    "kv-cache-utilization-scorer": 2.0,
    "prefix-cache-scorer": 3.0,
}
"""What the picker runs where its configuration names no plugin at all."""


@dataclass(frozen=True, slots=True)
class RouterSetup:
    """What a router's configuration says: by scheduling profile, the plugins it runs with their weights, and ``where``."""

    where: str
    profiles: Mapping[str, Mapping[str, float]]


def read(file: Path) -> RouterSetup:
    """
    The configuration in a file, also where it is wrapped in a ConfigMap (the first value that holds one).

    A plugin without a weight weighs 1; a configuration without profiles runs all its plugins in one called ``default``, one
    without plugins those of ``DEFAULT_SCORERS``. ConfigError says what is wrong where.
    """
    try:
        trees = list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the router's configuration {file}: {error}") from error
    except BROKEN_YAML as error:
        raise ConfigError(f"the router's configuration {file} is not YAML: {error}") from None
    for tree in _configurations(trees):
        return RouterSetup(str(file), _profiles(tree, file))
    raise ConfigError(f"{file} holds no {KIND}: name the file that the picker's --config-file points to, or its ConfigMap")


def _configurations(trees: list[Any]) -> Iterator[dict[str, Any]]:
    for tree in trees:
        if not isinstance(tree, dict):
            continue
        if tree.get("kind") == KIND:
            yield tree
        if tree.get("kind") == "ConfigMap" and isinstance(tree.get("data"), dict):
            for text in tree["data"].values():
                try:
                    inner = yaml.safe_load(text) if isinstance(text, str) else None
                except BROKEN_YAML:
                    continue  # another file of the same map
                if isinstance(inner, dict) and inner.get("kind") == KIND:
                    yield inner


def _profiles(tree: dict[str, Any], file: Path) -> dict[str, dict[str, float]]:
    types: dict[str, str] = {}
    for plugin in _list(tree, "plugins", file):
        if not isinstance(plugin.get("type"), str):
            raise ConfigError(f"{file}: an entry of plugins has no type: {plugin}")
        types[str(plugin.get("name") or plugin["type"])] = plugin["type"]
    profiles: dict[str, dict[str, float]] = {}
    for number, profile in enumerate(_list(tree, "schedulingProfiles", file)):
        scorers: dict[str, float] = {}
        for entry in _list(profile, "plugins", file):
            name = entry.get("pluginRef")
            if not isinstance(name, str) or name not in types:
                raise ConfigError(f"{file}: pluginRef {name!r} names no entry of plugins; there are {', '.join(types) or 'none'}")
            weight = entry.get("weight", 1)
            if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not abs(weight) < MAX_WEIGHT:
                raise ConfigError(f"{file}: the weight of {name!r} is no number: {weight!r:.200}")
            scorers[types[name]] = float(weight)
        profiles[str(profile.get("name") or f"profile {number + 1}")] = scorers
    if not profiles:
        profiles["default"] = dict.fromkeys(types.values(), 1.0) if types else dict(DEFAULT_SCORERS)
    return profiles


def _list(tree: dict[str, Any], key: str, file: Path) -> list[dict[str, Any]]:
    value = tree.get(key) or []
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise ConfigError(f"{file}: {key} is a list of mappings, not {type(value).__name__}")
    return value
