"""Which sessions are worth preparing: those of the jobs that the next leader will recover."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, InvalidInput
from jrs.contract.runtime import Runtime
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import AttemptRecord, JobSpec
from jrs.records.policies import check_count
from jrs.store import heads, restores
from jrs.store.cluster_format import too_old

from ..attempt import preloading
from ..attempt.runners.warm_pool import WarmPool
from ..attempt.warm_plan import WarmPlan, plan_of

_MOST = 200
"""How many attempts are looked at: more jobs have no other plans, and each costs two reads."""


def pool(
    backend: Backend,
    size: int,
    preload: Sequence[str],
    program: str,
    emit: Callable[[str], None],
    runtime: Runtime,
    *,
    shared: bool,
) -> WarmPool | None:
    """Return the pool of prepared processes; None if there are to be none.

    Args:
        preload: the modules that each process imports.
        program, emit, runtime: as `WarmPool`.
        shared: whether the group of the storage may change what attempts make.

    Raises:
        InvalidInput: so many processes, or these modules, cannot be prepared in this cluster.
    """
    modules = preloading.check(preload)
    if not size:
        if modules:
            raise InvalidInput("modules are preloaded by warm processes, and there are none")
        return None
    _check(backend, size)

    def plans() -> list[WarmPlan]:
        return [attrs.evolve(plan, preload=modules) for plan in wanted(backend, shared=shared)]

    return WarmPool(size, program, plans, emit, runtime)


def _check(backend: Backend, size: int) -> None:
    """Raise `InvalidInput` unless so many processes can be prepared in this cluster."""
    check_count("warm", size)
    # Masters of earlier versions might not find such a process.
    if why := too_old(backend, heads.SINCE_FORMAT, "a warm process"):
        raise InvalidInput(why)


def wanted(backend: Backend, *, shared: bool) -> list[WarmPlan]:
    """Return the plans of unfinished jobs that have started a session, one for each job.

    Args:
        shared: whether the group of the storage may change what attempts make.

    Raises:
        Unavailable, OutcomeUnknown: from the backend.
    """
    plans = (
        _plan(backend, stored.value, stored.key, shared=shared)
        for stored in islice(backend.scan(keys.ATTEMPTS), _MOST)
    )
    return [plan for plan in plans if plan is not None]


def _plan(backend: Backend, value: bytes, key: str, *, shared: bool) -> WarmPlan | None:
    try:
        attempt = decode(AttemptRecord, value, key)
        if attempt.session is None:
            return None
        stored = backend.get(keys.JOBS + attempt.job_id)
        if stored is None or restores.took_place_of(stored):
            return None
        spec = decode(JobSpec, stored.value, stored.key)
    except CorruptRecord:
        return None  # Its job is held, or starts without a prepared session.
    return plan_of(spec, attempt, shared=shared)
