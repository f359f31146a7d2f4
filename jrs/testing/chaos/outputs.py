"""What jobs have written: compared by content, since Spark gives files random names."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from jrs.recovery.files.visible_files import is_hidden

Json = TypeVar("Json")


def contents(path: Path) -> dict[str, Any]:
    """Return what is in a file or a folder: for each folder its rows, or digests of its files.

    Parquet is compared by rows, in any order; other files byte by byte, whatever their names are.
    Files that Spark passes over do not count, such as those whose names begin with ``.``.
    """
    if path.is_file():
        return {"": [_digest(path)]}
    folders: dict[str, list[Path]] = {}
    for file in sorted(path.rglob("*")):
        inside = file.relative_to(path)
        if file.is_file() and not is_hidden(inside):
            folders.setdefault(str(inside.parent), []).append(file)
    return {folder: _content(files) for folder, files in folders.items()}


def _content(files: list[Path]) -> list[str]:
    if all(file.suffix == ".parquet" for file in files):
        return sorted(row for file in files for row in _rows(file))
    return sorted(map(_digest, files))


def _rows(file: Path) -> list[str]:
    import pyarrow.parquet  # Only needed by those whose jobs write it.

    return [repr(sorted(row.items())) for row in pyarrow.parquet.read_table(file).to_pylist()]


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return JSON, in which paths may stand for texts, with each text changed but for names."""
    if isinstance(value, (str, Path)):
        return change(str(value))
    if isinstance(value, (list, tuple)):
        return [with_texts(one, change) for one in value]
    if isinstance(value, Mapping):
        return {name: with_texts(one, change) for name, one in value.items()}
    return value


def places(value: Any, folder: Path) -> list[Path]:
    """Return the places below a folder that the texts of JSON name, in their order."""
    found: list[Path] = []

    def look(text: str) -> str:
        found.append(Path(text))
        return text

    with_texts(value, look)
    return [place for place in found if place.is_relative_to(folder)]


def moved(value: Json, before: str, after: str) -> Json:
    """Return JSON with another folder in all its texts."""
    text = json.dumps(value).replace(json.dumps(before)[1:-1], json.dumps(after)[1:-1])
    found: Json = json.loads(text)
    return found
