"""What a master is made with, checked before it changes anything."""

from __future__ import annotations

from jrs.contract.backend import Backend
from jrs.contract.inputs import check_call, check_is, check_text
from jrs.records.policies import check_count

from ..cleanup.policy import CleanupPolicy
from ..rules.events import Report
from ..rules.retention import RetentionPolicy
from .trust import Trust


def check(
    backend: Backend,
    *,
    url: str,
    ttl: float,
    cleanup_policy: CleanupPolicy | None,
    trust: Trust,
    report: Report,
    max_attempts: int | None,
    retention: RetentionPolicy,
) -> None:
    """Raise `InvalidInput` for an option of `Master` that cannot be used."""
    check_is(backend, "backend", Backend, hint="jrs.open_backend(url) returns one")
    check_text(url, "url")
    backend.check_ttl(ttl)
    if cleanup_policy is not None:
        check_is(cleanup_policy, "cleanup_policy", CleanupPolicy)
    check_is(trust, "trust", Trust)
    check_call(report, "report")
    if max_attempts is not None:
        check_count("max_attempts", max_attempts)
    check_is(retention, "retention", RetentionPolicy)
