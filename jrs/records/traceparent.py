"""The W3C's ``traceparent``: which trace, and which span of it, something is part of."""

from __future__ import annotations

import hashlib
import re

VARIABLE = "TRACEPARENT"
"""The environment variable by which programs pass it on."""
_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


def valid(text: object) -> str:
    """Return a ``traceparent`` as it is; an empty text for what is none, as W3C has receivers
    ignore it."""
    found = _FORM.fullmatch(text) if isinstance(text, str) and len(text) <= 256 else None
    if found is None:
        return ""
    version, trace, span, _, more = found.groups()
    known = version != "ff" and (version != "00" or more is None)
    # A later version may have more parts; what is passed on has those of version 00.
    return found[0][:55].replace(version, "00", 1) if known and _some(trace, span) else ""


def of_job(submitted: str, cluster: str, job_id: str) -> str:
    """Return the ``traceparent`` of all attempts of a job.

    Args:
        submitted: that of the job's submitter. Without one, the trace and its root are named after
            the job, so that each leader finds the same ones.
    """
    if found := valid(submitted):
        return found
    name = hashlib.sha256(f"jrs/{cluster}/{job_id}".encode()).hexdigest()
    return f"00-{name[:32]}-{name[32:48]}-01"


def parts(text: str) -> tuple[int, int, int]:
    """Return the trace, the span and the flags of a valid ``traceparent``, as numbers."""
    _, trace, span, flags = text.split("-")
    return int(trace, 16), int(span, 16), int(flags, 16)


def _some(*ids: str) -> bool:
    return all(one.strip("0") for one in ids)
