"""Leadership on etcd: a latch key in a lease. A candidate that finds no latch creates one.

The servers end a lease when its ttl has passed since its last heartbeat. The guardian process ends
it at once when the master's process dies. The transaction that increments the epoch checks that the
latch is still the candidate's own.
"""

from __future__ import annotations

import math
import threading
import uuid
from contextlib import suppress
from typing import Protocol

from jrs.contract.clock import Deadline, lease_time
from jrs.contract.errors import Fenced, JrsError, NotFound, OutcomeUnknown, Unavailable
from jrs.contract.leadership import Leadership
from jrs.contract.operations import EPOCH_KEY, Fence, Record
from jrs.records.codec import decode, encode
from jrs.records.model import EpochRecord

from ..remote.guardian import Guardian
from ..remote.signal_safe_calls import Stopped
from ..shared.lease import LeadershipLease
from . import revoke_lease
from ._etcd3 import rpc
from .connection import Connection
from .revoke_lease import revoke
from .watch import EtcdWatch

_LOOKS = 3
"""How often in a ttl a candidate checks the latch, even without a hint of its watch."""


class Handle(Protocol):
    """The part of the cluster's handle that a leadership needs."""

    connection: Connection
    root: bytes
    timeout: float

    def name(self, key: str) -> bytes: ...

    def get(self, key: str) -> Record | None: ...


def campaign(
    backend: Handle, candidate: str, ttl: float, stop: threading.Event
) -> Leadership | None:
    """Wait until no latch exists, create it and increment the epoch; None once stopped.

    Raises:
        Unavailable: no server answers within the handle's timeout.
    """
    latch = backend.root + b"latch"
    # Start it early, because starting a process takes longer than winning.
    config = revoke_lease.config_of(backend.connection.address)
    guardian = Guardian(revoke_lease.__name__, config, ttl)
    try:
        with EtcdWatch(backend.connection, latch) as watch:
            while not stop.is_set():
                guardian.beat()
                if not backend.connection.safe_calls.run(lambda: _exists(backend, latch), stop):
                    won = _take(backend, latch, candidate, ttl, guardian, stop)
                    if won is not None:
                        return won
                _await(watch, stop, ttl / _LOOKS)
    except Stopped:
        # While no server answers, only the guardian keeps trying to end the lease.
        guardian.dismiss(ended=False)
        return None
    except BaseException:
        guardian.dismiss()
        raise
    guardian.dismiss()
    return None


def _await(watch: EtcdWatch, stop: threading.Event, seconds: float) -> None:
    """Wait up to `seconds` for a hint or for `stop`."""
    deadline = Deadline.after(seconds)
    while not stop.is_set() and not deadline.expired:
        if watch.wait(min(0.1, deadline.remaining())):
            return


def _exists(backend: Handle, latch: bytes) -> bool:
    request = rpc.RangeRequest(key=latch, keys_only=True)
    deadline = Deadline.after(backend.timeout)
    return bool(backend.connection.read(lambda stubs: stubs.kv.Range, request, deadline).kvs)


def grant(backend: Handle, ttl: float, deadline: Deadline) -> tuple[int, int]:
    """Create a lease; return its id and its ttl in seconds, which may be longer than requested."""
    request = rpc.LeaseGrantRequest(TTL=math.ceil(ttl))
    try:
        answer = backend.connection.write(lambda stubs: stubs.lease.LeaseGrant, request, deadline)
    except OutcomeUnknown as error:
        # At worst an unused lease exists until its ttl ends.
        raise Unavailable(str(error)) from error
    return answer.ID, answer.TTL


def _take(
    backend: Handle,
    latch: bytes,
    candidate: str,
    ttl: float,
    guardian: Guardian,
    stop: threading.Event,
) -> Leadership | None:
    """Create the latch and increment the epoch; None if another candidate was faster.

    Raises:
        Stopped: `stop` was set. What is still under way leads nobody: the guardian ends the lease.
    """
    sent = lease_time()
    run = backend.connection.safe_calls.run
    lease, granted = run(lambda: grant(backend, ttl, Deadline.after(backend.timeout)), stop)
    guardian.guard(lease.to_bytes(8, "big"))

    def win() -> tuple[int, Record] | None:
        if not _create_latch(backend, latch, lease):
            return None
        return _bump(backend, latch, candidate, lease)

    try:
        won = run(win, stop)
    except Stopped:
        raise
    except BaseException:
        run(lambda: _give_up(backend, lease), stop)
        raise
    if not won:
        run(lambda: _give_up(backend, lease), stop)
        return None
    epoch, record = won
    fence = Fence(epoch, record.version)

    try:
        return LeadershipLease(
            epoch,
            fence,
            ttl=min(ttl, granted),
            sent=sent,
            beat=lambda deadline: _beat(backend, lease, fence, deadline),
            end=lambda: revoke(
                backend.connection, lease, Deadline.after(min(ttl, backend.timeout))
            ),
            held=guardian.lifeline,
            guardian=guardian,
        )
    except BaseException:
        _give_up(backend, lease)
        raise


def _beat(backend: Handle, lease: int, fence: Fence, deadline: Deadline) -> None:
    """Send a heartbeat.

    Raises:
        Fenced: the lease has ended, or a newer epoch exists.
        Unavailable: no server answered by the deadline.
    """
    keep = rpc.LeaseKeepAliveRequest(ID=lease)
    # Half of the time, so that after a member that hangs another one can answer.
    attempt = deadline.remaining() / 2
    # For a lease that is gone, the answer has a ttl of zero.
    answer = backend.connection.read(
        lambda stubs: stubs.keep_alive, keep, deadline, attempt=attempt
    )
    if answer.TTL <= 0:
        raise Fenced("the lease has ended")
    # Not `backend.get`, which may first wait for writes of other threads.
    request = rpc.RangeRequest(key=backend.name(EPOCH_KEY))
    found = backend.connection.read(
        lambda stubs: stubs.kv.Range, request, deadline, attempt=attempt
    ).kvs
    if not found or found[0].mod_revision != fence.version:
        raise Fenced("a newer epoch exists: this leader has been replaced")


def _give_up(backend: Handle, lease: int) -> None:
    with suppress(JrsError):  # If this fails, the lease ends after its ttl.
        revoke(backend.connection, lease, Deadline.after(backend.timeout))


def _create_latch(backend: Handle, latch: bytes, lease: int) -> bool:
    """Create the latch; return False if another candidate has one, or if the lease has ended."""
    compare = rpc.Compare(
        result=rpc.Compare.EQUAL, target=rpc.Compare.CREATE, key=latch, create_revision=0
    )
    put = rpc.RequestOp(request_put=rpc.PutRequest(key=latch, value=b"%d" % lease, lease=lease))
    request = rpc.TxnRequest(compare=[compare], success=[put])
    deadline = Deadline.after(backend.timeout)
    try:
        answer = backend.connection.write(lambda stubs: stubs.kv.Txn, request, deadline)
    except OutcomeUnknown:
        return True  # The transaction that increments the epoch checks the owner of the latch.
    except NotFound:
        return False  # A cut, or a pause of this host, was longer than the ttl.
    return bool(answer.succeeded)


def _bump(backend: Handle, latch: bytes, candidate: str, lease: int) -> tuple[int, Record] | None:
    """Increment the epoch under our latch; None if the latch is not ours or the epoch changed."""
    record = backend.get(EPOCH_KEY)
    current = decode(EpochRecord, record.value, EPOCH_KEY) if record else None
    epoch = current.epoch + 1 if current else 1
    value = encode(EpochRecord(epoch, candidate, uuid.uuid4().hex))
    key = backend.name(EPOCH_KEY)
    compare = rpc.Compare
    before = compare(
        result=compare.EQUAL,
        target=compare.MOD,
        key=key,
        mod_revision=record.version if record else 0,
    )
    ours = compare(result=compare.EQUAL, target=compare.VALUE, key=latch, value=b"%d" % lease)
    put = rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=value))
    request = rpc.TxnRequest(compare=[ours, before], success=[put])
    deadline = Deadline.after(backend.timeout)
    try:
        backend.connection.write(lambda stubs: stubs.kv.Txn, request, deadline)
    except OutcomeUnknown:
        pass  # Read back: the token shows which candidate won.
    stored = backend.get(EPOCH_KEY)
    if stored is None or stored.value != value:
        return None
    return epoch, stored
