"""The digest of what was asked for when a job was made: whether a request repeats an earlier one,
whatever has become of the job since.

A digest begins with the kind of the request. Another version has to make the same one: what a field
of a spec is by default never changes, nor do the names of fields.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import attrs

from jrs.records.model import JobSpec

_NOT_ASKED = frozenset({
    "submission", "submitted_at", "submitted_by", "signature", "lineage", "traceparent", "unknown",
})  # fmt: skip
"""Fields that another request for the same job may have otherwise."""


def asked_for(spec: JobSpec) -> dict[str, Any]:
    """Return what a spec asks for, without what is as it is by default: later versions have more
    fields."""
    found: dict[str, Any] = _given(spec)
    return found


def of_spec(spec: JobSpec) -> str:
    """Return the digest of a job that is submitted."""
    return _digest("submit", asked_for(spec))


def is_of_retry(digest: str) -> bool:
    """Return whether a digest is that of a retry. Retries by older versions have none of their own:
    they keep that of the job they retry."""
    return digest.startswith("retry:")


def of_retry(
    job_id: str,
    as_id: str | None,
    from_stage: str,
    entry_point: str | None,
    arguments: Mapping[str, Any] | None,
    changed: Mapping[str, Any],
) -> str:
    """Return the digest of a retry of a job."""
    given = None if arguments is None else dict(arguments)
    return _digest("retry", [job_id, as_id, from_stage, entry_point, given, dict(changed)])


def _digest(how: str, asked: Any) -> str:
    text = json.dumps([how, asked], sort_keys=True)
    return f"{how}:{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _given(value: Any) -> Any:
    if attrs.has(type(value)):
        default = {field.name: _default(field) for field in attrs.fields(type(value))}
        return {
            name: _given(found)
            for name in default.keys() - _NOT_ASKED
            if (found := getattr(value, name)) != default[name]
        }
    return [_given(one) for one in value] if isinstance(value, tuple) else value


def _default(field: attrs.Attribute[Any]) -> Any:
    default: Any = field.default
    return default.factory() if isinstance(default, attrs.Factory) else default  # type: ignore[arg-type]
