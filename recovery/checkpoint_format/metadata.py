"""The ``metadata`` of a checkpoint: the id of its query."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs

from .unreadable import UnreadableCheckpoint, decode, load_object

_WHAT = "the metadata of a query"


@attrs.frozen
class Metadata:
    """The identity of a query."""

    id: str
    _body: Mapping[str, Any]

    def with_id(self, query: str) -> Metadata:
        """Return the metadata of another query."""
        return Metadata(query, MappingProxyType({**self._body, "id": query}))

    def text(self) -> str:
        """Return the text of the file."""
        return json.dumps(dict(self._body), separators=(",", ":"))


def parse(data: bytes, where: Path) -> Metadata:
    """Parse a ``metadata`` file.

    Raises:
        UnreadableCheckpoint: the file holds something else.
    """
    body = load_object(decode(data, where), _WHAT, where)
    query = body.get("id")
    if not isinstance(query, str):
        raise UnreadableCheckpoint(f"{where}: not {_WHAT} of Spark: it names no id")
    return Metadata(query, MappingProxyType(body))


def read(path: Path) -> Metadata:
    """Read a ``metadata`` file.

    Raises:
        FileNotFoundError: the file is missing.
        UnreadableCheckpoint: the file holds something else.
    """
    return parse(path.read_bytes(), path)
