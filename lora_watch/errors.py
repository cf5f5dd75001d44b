"""
Everything lora_watch raises on purpose. The tree is the contract: jobs catch ``LoraWatchError`` and nothing wider.

* LoraWatchError
  x ConfigError            the configuration file is wrong; says which key and the nearest known name
  x SourceError
    - SourceUnavailable    try again later; the next tick retries
    - SourceRejected       the answer or the query is wrong; a person must look
  x SchemaMismatch         a frame lacks a column, or has another type
  x StoreError
    - StoreConflict        another writer committed first; read the positions again and refetch
    - StoreFull            no space is left; nothing was committed, the next tick tries again
  x NotEnoughHistory       the answer would be a guess; carries what is missing
"""


class LoraWatchError(Exception):
    """Says what was being done, where, and what to do about it."""


class ConfigError(LoraWatchError):
    """The configuration file is wrong."""


class SourceError(LoraWatchError):
    """A source could not be read."""


class SourceUnavailable(SourceError):
    """Try again later; the next tick retries."""


class SourceRejected(SourceError):
    """The answer or the query is wrong; a person must look."""


class SchemaMismatch(LoraWatchError):
    """A frame lacks a column, or has another type."""


class StoreError(LoraWatchError):
    """A table could not be read or written."""


class StoreConflict(StoreError):
    """Another writer committed first; read the positions again and refetch."""


class StoreFull(StoreError):
    """No space is left; nothing was committed, the next tick tries again."""


class NotEnoughHistory(LoraWatchError):
    """The answer would be a guess; carries what is missing."""
