"""Checks of what callers give: names and JSON payloads."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from jrs.contract.errors import InvalidInput, TooLarge
from jrs.contract.texts import LIMIT, fitting, fitting_map, shown
from jrs.records.field_types import Json, as_json

MAX_PAYLOAD = 256 * 1024
"""Largest JSON payload of a result, a stage or a spec's arguments, in encoded bytes."""

_LAST_MOMENT = 253402300800
"""The end of the year 9999; in milliseconds, a time of today is far later."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

_encoder = json.JSONEncoder(allow_nan=False)


def check_job_id(job_id: object) -> str:
    """Return `job_id`, or raise `InvalidInput` with the form of a job id."""
    return _check_name(job_id, "job id")


def a_job_id(_instance: object, _attribute: object, value: str) -> None:
    """Validate a field that holds a job id; see `check_job_id`."""
    check_job_id(value)


def a_job_id_or_none(_instance: object, _attribute: object, value: str) -> None:
    """Validate a field that holds a job id, or is empty because it is about no job."""
    if value:
        check_job_id(value)


def check_cluster(cluster: object) -> str:
    """Return `cluster`, or raise `InvalidInput`; cluster ids follow the rules of job ids."""
    return _check_name(cluster, "cluster id")


def check_stage_name(name: object) -> str:
    """Return `name`, or raise `InvalidInput`; stage names follow the rules of job ids."""
    return _check_name(name, "stage name")


def check_master_name(name: object) -> str:
    """Return `name`, or raise `InvalidInput`; master names follow the rules of job ids."""
    return _check_name(name, "master name")


def _check_name(name: object, what: str) -> str:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InvalidInput(
            f"not a {what}: {shown(name)} (1 to 128 of A-Z a-z 0-9 . _ -, starting with a letter "
            "or digit)"
        )
    return name


def check_moment(value: object, name: str) -> None:
    """Raise `InvalidInput` unless `value` is a time in seconds since 1970, or None."""
    if value is None:
        return
    hint = ""
    if isinstance(value, int | float) and type(value) is not bool:
        if 0 <= value <= _LAST_MOMENT:
            return
        hint = "; it seems to be in milliseconds" if _LAST_MOMENT < value < 1e15 else ""
    raise InvalidInput(
        f"{name} must be a time in seconds since 1970, such as time.time() or moment.timestamp(), "
        f"not {shown(value)}{hint}"
    )


def check_folder(folder: object) -> Path:
    """Return a folder that a caller named by a path or a text, or raise `InvalidInput`.

    A text that is a URL names none: what is meant for a bucket must not end up on this host.
    """
    if not isinstance(folder, (str, Path)) or not str(folder) or "://" in str(folder):
        raise InvalidInput(f"not a folder: {shown(folder)}; give a path")
    return Path(folder)


def check_path(path: str, base: str) -> None:
    """Raise `InvalidInput` unless `path` is relative and leads to a place below `base`."""
    if path.startswith("/"):
        raise InvalidInput(f"the path {path!r} is absolute")
    if {"", ".", ".."} & set(path.split("/")) or "\0" in path:
        raise InvalidInput(f"the path {path!r} leads out of {base}")


def check_entry_point(entry_point: object) -> str:
    """Return `entry_point`, or raise `InvalidInput` unless it has the form of one. Whether it leads
    anywhere depends on the host."""
    place, colon, name = (entry_point if isinstance(entry_point, str) else "").rpartition(":")
    if not isinstance(entry_point, str) or not (place and colon and name):
        raise InvalidInput(
            f"not an entry point: {shown(entry_point)}; write package.module:function or "
            "/path/file.py:function"
        )
    check_system_text(entry_point, "the entry point")
    if os.sep in place and not place.endswith(".py"):
        # The import would only report that no such module exists.
        file = f"{place}.py"
        what = f"write {file}:{name}" if Path(file).is_file() else f"there is no file {file}"
        raise InvalidInput(f"entry point {entry_point!r}: a file's path must end in .py: {what}")
    return entry_point


def check_system_text(text: str, what: str) -> None:
    """Raise `InvalidInput` unless the operating system has a form for a text: a path, the name of a
    module, the value of a variable. The message does not repeat it: it may be a secret."""
    if "\0" in text:
        raise InvalidInput(f"{what} has a null character")
    try:
        # As `os.fsencode` on a host with UTF-8: names in other encodings pass.
        text.encode(errors="surrogateescape")
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"{what} has half of a character ({ascii(text[error.start])[1:-1]}), which has no form "
            "outside of JSON"
        ) from None


def size_of_json(value: Json) -> int:
    """Return the size of a value in its stored form, in bytes."""
    return len(_encoder.encode(value))


def check_json(value: Json, what: str) -> Json:
    """Return `value` as JSON would return it (tuples as lists), or raise.

    Raises:
        InvalidInput: not JSON; see `as_json`.
        TooLarge: the encoded value is over `MAX_PAYLOAD`.
    """
    try:
        plain = as_json(value)
    except InvalidInput as error:
        raise InvalidInput(f"not JSON: {what}: {error}") from None
    encoded = _encoder.encode(plain)
    if len(encoded) > MAX_PAYLOAD:
        raise TooLarge(
            f"too large: {what}, {len(encoded):,} bytes of JSON; limit {MAX_PAYLOAD:,}. Store the "
            "data where it belongs (a file, a table) and give its location instead"
        )
    return plain


def merged(arguments: Mapping[str, Json] | None, more: Mapping[str, Json]) -> dict[str, Json]:
    """Return the arguments of a function that a caller gave as a mapping, as keywords, or both.

    Raises:
        InvalidInput: not a mapping, or one is given twice.
    """
    if arguments is not None and not isinstance(arguments, Mapping):
        raise InvalidInput(f"arguments must be a mapping, not {shown(arguments)}")
    if twice := {*(arguments or {})} & {*more}:
        raise InvalidInput(f"the argument {min(twice)!r} is given twice")
    return {**(arguments or {}), **more}


def bounded_text(text: str, limit: int = LIMIT) -> str:
    """Return a text of a stored value in at most `limit` bytes; what is no text is refused by
    `check_fields`. Secrets are masked where a text is made, not here: stored values are read by
    this."""
    return fitting(text, limit) if isinstance(text, str) else text


def bounded_texts(texts: dict[str, str]) -> dict[str, str]:
    """Return named texts of a stored value, bounded; others are refused by `check_fields`."""
    try:
        return fitting_map(texts)
    except (AttributeError, TypeError, ValueError):
        return texts
