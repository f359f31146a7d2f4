"""Leadership on ZooKeeper: a latch of znodes, on a separate session whose timeout is the ttl.

Every candidate has a znode in the latch that ends with its session. The candidate whose znode was
created first leads, and each candidate watches the one before it. (The creating transactions define
the order. A sequence number in the name would have only 32 bits and begin again with its parent.)
The first candidate increments the epoch, in a write that also checks that its own znode still
exists.

The znodes make it likely that only one leader exists at a time; the fence guarantees that only one
can write.

Servers report sessions to each other every half tick, so the server that ends a session may count
from a moment up to half a tick before our last heartbeat. The quarter of the ttl that
`LeadershipLease` keeps back covers that, because no session is shorter than two ticks (unless
`minSessionTimeout` allows it: then a leader that is cut off may notice later than its successor,
and the fence alone decides).
"""

from __future__ import annotations

import threading
import uuid
from typing import Any

from jrs.contract.clock import Deadline, lease_time
from jrs.contract.errors import Fenced, InvalidInput, OutcomeUnknown, Unavailable
from jrs.contract.operations import EPOCH_KEY, Create, Fence, Op, Update
from jrs.records.codec import decode, encode
from jrs.records.model import EpochRecord

from ..remote.guardian import Guardian
from ..shared.lease import LeadershipLease
from . import close_session
from .cluster import removed
from .layout import directory_of
from .plan import Planner
from .protocol import codec
from .protocol.access import Access
from .protocol.connection import Connection
from .protocol.multi_read import read
from .protocol.request import Request, refusal
from .versions import CachedVersion

_POLL = 0.02
"""Seconds between a candidate's checks of `stop`."""


def campaign(
    access: Access,
    planner: Planner,
    candidate: str,
    *,
    ttl: float,
    timeout: float,
    stop: threading.Event,
) -> LeadershipLease | None:
    """Wait for the turn of `candidate` and increment the epoch; None once stopped.

    Raises:
        InvalidInput: the server does not grant sessions of that ttl.
        Refused: the cluster was removed.
        Unavailable: no server answered for `timeout` seconds.
    """
    if stop.is_set():
        return None
    candidacy = _Candidacy(access, planner, candidate, ttl)
    try:
        candidacy.start(Deadline.after(timeout))
        won = _wait(candidacy, timeout, stop)
    except BaseException:
        candidacy.withdraw()
        raise
    if won is None:
        candidacy.withdraw()
    return won


def _wait(candidacy: _Candidacy, timeout: float, stop: threading.Event) -> LeadershipLease | None:
    until = Deadline.after(timeout)
    while not stop.is_set():
        try:
            won = candidacy.look(Deadline.after(min(timeout, max(1.0, candidacy.ttl))))
            if won is not None:
                return won
            until = Deadline.after(timeout)
        except (Unavailable, OutcomeUnknown) as error:
            # A candidate loses nothing by waiting until a server returns.
            if until.expired:
                raise Unavailable(str(error)) from error
        candidacy.rest(stop)
    return None


class _Candidacy:
    """One candidate: its session, the session's guardian, and its place in the latch."""

    def __init__(self, access: Access, planner: Planner, candidate: str, ttl: float) -> None:
        self.ttl = ttl
        self._access = access
        self._planner = planner
        self._candidate = candidate
        # Before the session, so that it has a guardian from its first moment on.
        self._guardian = Guardian(close_session.__name__, access.config(), ttl)
        try:
            self._connection = Connection(
                access, timeout=ttl, name=f"jrs-zookeeper-{planner.layout.cluster}-leader"
            )
        except BaseException:
            self._guardian.dismiss()
            raise
        self._session = 0
        self._place = ""
        self._turn = threading.Event()
        self._watched = ""

    def start(self, deadline: Deadline) -> None:
        """Begin the session."""
        self._connection.start(deadline)
        granted = self._connection.granted
        if abs(granted - self.ttl) > 0.002:
            raise InvalidInput(
                f"{self._access.where} grants sessions of {granted:g} s, not of {self.ttl:g} s: "
                "choose another ttl, or change minSessionTimeout and maxSessionTimeout"
            )

    def withdraw(self) -> None:
        """End the session; if no server answers, its guardian keeps trying."""
        try:
            self._connection.end_session()
        except Unavailable:
            self._guardian.dismiss(ended=False)
        else:
            self._guardian.dismiss()

    def rest(self, stop: threading.Event) -> None:
        """Wait until the latch may have changed, or for a third of the ttl."""
        deadline = Deadline.after(self.ttl / 3)
        while not (self._turn.is_set() or deadline.expired or stop.wait(_POLL)):
            pass
        self._turn.clear()

    def look(self, deadline: Deadline) -> LeadershipLease | None:
        """Take a place in the latch, and lead if it is the first place."""
        # Or the guardian of a candidate that waits for long takes it for one that hangs.
        self._guardian.beat()
        self._keep_place(deadline)
        ahead = self._ahead(deadline)
        if ahead is None:
            self._turn.set()  # If this fails, check again at once.
            return self._take(deadline) if self._session else None
        if ahead != self._watched:
            self._watched = ahead
            self._watch(ahead)
        return None

    # -- the latch -------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return f"{self._planner.layout.latch}/{name}"

    def _keep_place(self, deadline: Deadline) -> None:
        """Create a znode of the current session in the latch, unless it exists."""
        session = self._connection.session
        if session is None:
            raise Unavailable(f"{self._access.where}: not connected")
        if session[0] == self._session:
            return
        self._guardian.guard(close_session.secret_of(session))
        # A unique name, so that the znode can be found if the reply is lost. A znode that came late
        # would make this candidate wait for itself; what is written later may come late.
        self._place = uuid.uuid4().hex
        self._connection.tolerates_late_writes = False
        made = codec.create(
            self._path(self._place), self._candidate.encode(), self._planner.acl, ephemeral=True
        )
        try:
            request = self._connection.write([made], deadline)
        except OutcomeUnknown:
            pass  # `_ahead` looks for it; if it is absent, another one is created.
        else:
            self._check(request)
        self._session, self._watched = session[0], ""

    def _ahead(self, deadline: Deadline) -> str | None:
        """Return the candidate before us; None if we are the first or have lost our place."""
        latch = self._planner.layout.latch
        (names,) = read(self._connection, [codec.get_children(latch)], deadline)
        if not isinstance(names, list) or self._place not in names:
            self._session = 0
            return None
        self._connection.tolerates_late_writes = True
        nodes = read(
            self._connection, [codec.get_data(self._path(name)) for name in names], deadline
        )
        created = {
            name: node.created
            for name, node in zip(names, nodes, strict=True)
            if isinstance(node, codec.Node)
        }
        own = created.pop(self._place, 0)
        earlier = [name for name in created if created[name] < own]
        return max(earlier, key=created.__getitem__, default=None)

    def _watch(self, name: str) -> None:
        def answered(request: Request) -> None:
            if request.reply is None:
                self._watched = ""
                self._turn.set()  # The znode is already gone, or the request has to be repeated.

        def fired(_: Any) -> None:
            self._watched = ""
            self._turn.set()

        path = self._path(name)
        self._connection.submit(
            Request(codec.EXISTS, codec.text(path) + b"\1", answered, path=path, watcher=fired)
        )

    # -- the epoch -------------------------------------------------------------------------

    def _take(self, deadline: Deadline) -> LeadershipLease | None:
        """Increment the epoch; None if the place is lost or another candidate was faster."""
        sent = lease_time()
        known, value = self._epoch(deadline)
        current = None if value is None else decode(EpochRecord, value, EPOCH_KEY)
        epoch = current.epoch + 1 if current else 1
        ours = encode(EpochRecord(epoch, self._candidate, uuid.uuid4().hex))
        bump: Op = Create(EPOCH_KEY, ours) if known is None else (
            Update(EPOCH_KEY, ours, known.version)
        )  # fmt: skip
        plan = self._planner.plan([bump], None, {EPOCH_KEY: known})
        if known is None:
            made = self._planner.directory(directory_of(EPOCH_KEY))
            self._check(self._connection.write(made, deadline), codec.NODE_EXISTS)
        try:
            request = self._connection.write(
                [codec.check(self._path(self._place)), *plan.operations], deadline
            )
        except OutcomeUnknown:
            pass  # Read back: the token shows which candidate won.
        else:
            assert request.reply is not None
            failed = codec.failure(*request.reply)
            if failed is not None and failed[1] == codec.NO_AUTH:
                raise refusal(failed[1], self._access.where)
            if failed is not None:
                self._session = 0 if failed[0] == 0 else self._session
                return None
        known, value = self._epoch(deadline)
        if known is None or value != ours:
            return None
        return self._lead(epoch, known, sent)

    def _epoch(self, deadline: Deadline) -> tuple[CachedVersion | None, bytes | None]:
        shard, record = read(self._connection, self._planner.look([EPOCH_KEY]), deadline)
        known = self._planner.seen(EPOCH_KEY, shard, record)
        return known, record.value if isinstance(record, codec.Node) else None

    def _lead(self, epoch: int, known: CachedVersion, sent: float) -> LeadershipLease:
        layout = self._planner.layout
        checks = [
            codec.check(self._path(self._place)),
            codec.check(layout.shard(EPOCH_KEY), known.guard.deletions),
            codec.check(layout.record(EPOCH_KEY), known.writes),
        ]

        def beat(deadline: Deadline) -> None:
            # A write that changes nothing, because it needs a majority of the servers. A server
            # that is cut off would answer a read while the other servers end the session.
            request = self._connection.write(checks, deadline)
            assert request.reply is not None
            failed = codec.failure(*request.reply)
            if failed is not None:
                ended = "its session has ended" if failed[0] == 0 else "a newer epoch exists"
                raise Fenced(f"epoch {epoch} is over: {ended}")

        return LeadershipLease(
            epoch,
            Fence(epoch, known.version),
            ttl=self._connection.granted,
            sent=sent,
            beat=beat,
            end=self._connection.end_session,
            held=self._guardian.lifeline,
            guardian=self._guardian,
        )

    def _check(self, request: Request, *fine: int) -> None:
        assert request.reply is not None
        failed = codec.failure(*request.reply)
        if failed is None or failed[1] in fine:
            return
        if failed[1] == codec.NO_NODE:
            raise removed(self._planner.layout, self._access.where)
        raise refusal(failed[1], self._access.where)
