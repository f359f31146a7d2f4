"""Errors as answers: problem details by RFC 9457, one for each type of error."""

from __future__ import annotations

import re
from typing import Any

import attrs

from jrs.contract.errors import (
    DuplicateJob,
    FolderReplaced,
    InvalidInput,
    JrsError,
    NoSuchCluster,
    NotFound,
    OutcomeUnknown,
    Refused,
    ResultExpired,
    TooLarge,
    Unavailable,
)
from jrs.contract.texts import bounded, printable
from jrs.sidecar.places import AllTaken
from jrs.sidecar.route_form import BadRequest

CONTENT_TYPE = "application/problem+json"
RETRY_AFTER = 2
"""Seconds after which a caller may repeat what failed because the backend was away."""

_STATUSES: tuple[tuple[type[Exception], int, str], ...] = (
    (BadRequest, 400, "The request cannot be read"),
    (NoSuchCluster, 503, "The cluster does not exist yet"),
    (InvalidInput, 422, "A value cannot be used"),
    (TooLarge, 422, "A value is too large"),
    (ResultExpired, 410, "The result was expired"),
    (NotFound, 404, "There is no such thing"),
    (DuplicateJob, 409, "The job id is taken"),
    (FolderReplaced, 503, "This server has another folder open; nothing was changed"),
    (Refused, 409, "The call was refused; nothing was changed"),
    (AllTaken, 503, "The server has too many requests that stay open; nothing was changed"),
    (Unavailable, 503, "The backend does not answer; nothing was changed"),
    (OutcomeUnknown, 504, "The outcome is unknown: read back before you repeat the call"),
)
"""The first type that fits decides."""


@attrs.frozen
class Problem:
    """An error as it is answered."""

    status: int
    title: str
    detail: str
    type: str = "about:blank"
    extra: dict[str, Any] = attrs.field(factory=dict)
    headers: dict[str, str] = attrs.field(factory=dict)

    def body(self) -> dict[str, Any]:
        """Return its JSON."""
        fixed = {"type": self.type, "title": self.title, "status": self.status}
        return {**fixed, "detail": self.detail, **self.extra}


def problem_of(error: Exception) -> Problem:
    """Return the answer to an error. An error that is not of jrs tells nothing but that."""
    found = next((one for one in _STATUSES if isinstance(error, one[0])), None)
    if found is None:
        return Problem(500, "The server has failed", "its log says more")
    _, status, title = found
    extra = {"state": error.state} if isinstance(error, DuplicateJob) else {}
    headers = {"Retry-After": str(RETRY_AFTER)} if status == 503 else {}
    said = printable(bounded(str(error)))
    return Problem(status, title, said, f"urn:jrs:{_name(error)}", dict(extra), headers)


def _name(error: Exception) -> str:
    """Return the name of an error's public type, with hyphens."""
    kind = next(one for one in type(error).__mro__ if one in _PUBLIC)
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind.__name__).lower()


def _public() -> set[type]:
    found: set[type] = set()
    rest: list[type] = [JrsError]
    while rest:
        kind = rest.pop()
        found.add(kind)
        below: list[type] = kind.__subclasses__()
        rest += [one for one in below if one.__module__ == "jrs"]
    return found


_PUBLIC = _public()
