"""Versioned, checksummed JSON: how every value is stored.

``{"jrs":"<type>/<version>","crc":"<crc32 of the body>","body":<the value>}``, ASCII, one line.
The checksum is over the body's bytes as they stand, so that checking does not depend on how they
would be written today.

The version is that of the least reader: one that knows it can act on the record. Within a version,
fields that the reader does not know are ignored, and kept when the value is written again. A field
that cannot be ignored takes a new version. Strict on write; on read, whatever does not fit is a
`CorruptRecord`, and a version above this code's own an `UnsupportedVersion`: nothing is guessed.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import Any, TypeVar, get_args

import attrs
import cattrs
from cattrs.errors import BaseValidationError, CattrsError
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from jrs.contract.errors import CorruptRecord, JrsError, UnsupportedVersion
from jrs.records import model, snapshots
from jrs.records.stored import Stored

T = TypeVar("T", bound=Stored)

_TYPES: dict[type[Stored], tuple[str, int]] = {
    model.AttemptRecord: ("attempt", 1),
    model.CancelRequest: ("cancel", 1),
    model.CleanupJournal: ("cleanup", 1),
    model.EpochRecord: ("epoch", 1),
    model.FormatRecord: ("format", 1),
    model.JobResult: ("result", 1),
    model.JobSpec: ("spec", 1),
    model.MasterInfo: ("master", 1),
    model.StageRecord: ("stage", 1),
    model.StopRecord: ("stop", 1),
    model.StreamRecord: ("stream", 1),
    model.Tombstone: ("tombstone", 1),
    snapshots.Manifest: ("manifest", 1),
    snapshots.RestoreRecord: ("restore", 1),
    snapshots.SnapshotRecord: ("snapshot", 1),
}
"""Every type that is stored, its name and the newest version that this code can act on."""

_ENVELOPE = re.compile(rb'\{"jrs":"([a-z]+)/([0-9]{1,9})","crc":"([0-9a-f]{8})","body":(.+)\}')


def _json_value(value: Any, _: Any) -> Any:
    return value


def _make_converter() -> cattrs.Converter:
    converter = cattrs.Converter(detailed_validation=False)
    converter.register_structure_hook_factory(_is_stored, lambda kind: _reader(kind, converter))
    converter.register_unstructure_hook_factory(_is_stored, lambda kind: _writer(kind, converter))
    # `model.Json` is JSON already: it is neither built nor taken apart.
    converter.register_structure_hook_func(lambda kind: kind is Any, _json_value)
    converter.register_unstructure_hook_func(lambda kind: kind is Any, lambda value: value)
    for kind in (str, int, bool):
        converter.register_structure_hook(kind, _exactly(kind))
    converter.register_structure_hook(float, _number)
    converter.register_structure_hook_func(
        lambda kind: getattr(kind, "__origin__", None) is tuple,
        lambda value, kind: _tuple(converter, value, kind),
    )
    return converter


def _is_stored(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Stored)


def _reader(kind: type[Stored], converter: cattrs.Converter) -> Any:
    """Return what makes a value of plain JSON, with the fields that `kind` does not know."""
    structure = make_dict_structure_fn(
        kind, converter, _cattrs_detailed_validation=False, unknown=override(omit=True)
    )
    known = {field.name for field in attrs.fields(kind)} - {"unknown"}

    def read(plain: Any, _: Any) -> Any:
        if type(plain) is not dict:
            raise TypeError(f"{plain!r} is no object")
        value = structure(plain, kind)
        if known.issuperset(plain):
            return value
        return attrs.evolve(
            value, unknown={name: plain[name] for name in plain if name not in known}
        )

    return read


def _writer(kind: type[Stored], converter: cattrs.Converter) -> Any:
    """Return what makes plain JSON of a value, the fields that `kind` does not know included."""
    unstructure = make_dict_unstructure_fn(kind, converter, unknown=override(omit=True))

    def write(value: Stored) -> dict[str, Any]:
        plain: dict[str, Any] = unstructure(value)
        return {**plain, **value.unknown} if value.unknown else plain

    return write


def _tuple(converter: cattrs.Converter, value: Any, kind: Any) -> Any:
    if type(value) is not list:
        raise TypeError(f"{value!r} is no list")
    item = get_args(kind)[0]
    return tuple(converter.structure(each, item) for each in value)


def _exactly(kind: type) -> Any:
    """Refuse what is not `kind` already: cattrs would coerce, and so accept a mutilated record."""

    def hook(value: Any, _: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"{value!r} is no {kind.__name__}")
        return value

    return hook


def _number(value: Any, _: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError(f"{value!r} is no number")
    return float(value)


_converter = _make_converter()
_to_json = json.JSONEncoder(allow_nan=False, check_circular=False, separators=(",", ":")).encode


def encode(value: Stored) -> bytes:
    """Return the stored form of a value of `jrs.records.model`: ASCII without line breaks."""
    name, _ = _TYPES[type(value)]
    body = _to_json(_converter.unstructure(value)).encode("ascii")
    return b'{"jrs":"%s/%d","crc":"%08x","body":%s}' % (
        name.encode(),
        value.least_reader(),
        zlib.crc32(body),
        body,
    )


def to_plain(value: Any) -> Any:
    """Return a stored value, or a list or dict of such, as plain JSON."""
    return _converter.unstructure(value)


def with_job_id(data: bytes, job_id: str, where: str) -> bytes:
    """Return a stored record of whatever type as that of another job.

    Raises:
        CorruptRecord: it is no record, or not one of a job.
    """
    kind, fields = _opened(data, where)
    if "job_id" not in fields:
        name = kind.decode().partition("/")[0]
        raise CorruptRecord(f"{where}: a {name!r}, which is not a job's")
    return with_fields(data, where, job_id=job_id)


def fields_of(data: bytes, where: str) -> dict[str, Any]:
    """Return the fields of a stored record of whatever type, also those of a later version.

    Raises:
        CorruptRecord: it is no record.
    """
    return _opened(data, where)[1]


def with_fields(data: bytes, where: str, **fields: Any) -> bytes:
    """Return a stored record of whatever type with other values of some fields.

    Raises:
        CorruptRecord: it is no record.
    """
    kind, before = _opened(data, where)
    body = _to_json({**before, **fields}).encode("ascii")
    return b'{"jrs":"%s","crc":"%08x","body":%s}' % (kind, zlib.crc32(body), body)


def _opened(data: bytes, where: str) -> tuple[bytes, dict[str, Any]]:
    """Return the type and version of a stored record, as they are written, and its fields."""
    match = _ENVELOPE.fullmatch(data)
    if match is None or b"%08x" % zlib.crc32(match[4]) != match[3]:
        raise CorruptRecord(f"{where}: not a record of jrs, or a damaged one")
    try:
        fields = json.loads(match[4])
    except (ValueError, RecursionError) as error:
        raise CorruptRecord(f"{where}: not a record of jrs: {error}") from error
    if not isinstance(fields, dict):
        raise CorruptRecord(f"{where}: not a record of jrs, or a damaged one")
    return match[1] + b"/" + match[2], fields


def decode(kind: type[T], data: bytes, where: str) -> T:
    """Return the value that `data` holds; `where` names its place in error messages.

    Raises:
        UnsupportedVersion: written by a newer jrs.
        CorruptRecord: anything else that is not a `kind`.
    """
    name, newest = _TYPES[kind]
    match = _ENVELOPE.fullmatch(data)
    if match is None:
        raise CorruptRecord(f"{where}: not a record of jrs ({len(data)} bytes)")
    found, version, crc, body = match.groups()
    if found.decode() != name:
        raise CorruptRecord(f"{where}: holds a {found.decode()!r}, not a {name!r}")
    if int(version) > newest:
        raise UnsupportedVersion(
            f"{where}: {name} record of version {int(version)}; this jrs reads up to {newest}: "
            "upgrade it"
        )
    if b"%08x" % zlib.crc32(body) != crc:
        raise CorruptRecord(f"{where}: checksum mismatch, the record was damaged")
    try:
        return _converter.structure(json.loads(body), kind)
    except (
        CattrsError,
        BaseValidationError,
        JrsError,
        ValueError,
        TypeError,
        OverflowError,
        KeyError,
        AttributeError,
        RecursionError,
    ) as error:
        raise CorruptRecord(f"{where}: not a valid {name}: {error}") from error
