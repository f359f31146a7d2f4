"""Leading: a latch of our own, on a session of its own whose timeout is the ttl.

Every candidate has a znode in the latch that ends with its session; the one that was created first
leads, and each one watches the one before it. (The order is that of the transactions that created
them. A sequence number in the name would be 32 bits wide and begin again with its parent.) Who is
first bumps the epoch, in a write that also checks that its own znode is still there.

The znode makes it likely that one leads at a time; the fence makes it certain that one writes.

Servers tell each other of their sessions every half tick, so the one that ends a session may count
from a moment that much earlier than our last heartbeat. That is within the quarter of the ttl which
a `LeadershipLease` keeps back, since no session is shorter than two ticks (unless
`minSessionTimeout` says so: then a leader that is cut off may know later than its successor, and
the fence alone decides).
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
from .layout import directory_of
from .plan import Planner
from .protocol import codec
from .protocol.access import Access
from .protocol.connection import Connection
from .protocol.multi_read import read
from .protocol.request import Request, refusal
from .versions import CachedVersion

_POLL = 0.02
"""Seconds between a candidate's looks at whether it is to stop."""


def campaign(
    access: Access,
    planner: Planner,
    candidate: str,
    *,
    ttl: float,
    timeout: float,
    stop: threading.Event,
) -> LeadershipLease | None:
    """Wait for the turn of `candidate` and bump the epoch; None once stopped.

    Raises:
        InvalidInput: the server does not grant sessions of that ttl.
        Unavailable: the server could not be asked for `timeout` seconds.
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
    patience = Deadline.after(timeout)
    while not stop.is_set():
        try:
            won = candidacy.look(Deadline.after(min(timeout, max(1.0, candidacy.ttl))))
            if won is not None:
                return won
            patience = Deadline.after(timeout)
        except (Unavailable, OutcomeUnknown) as error:
            # A candidate loses nothing by waiting: servers come back.
            if patience.expired:
                raise Unavailable(str(error)) from error
        candidacy.rest(stop)
    return None


class _Candidacy:
    """One candidate: its session, the guardian of that session, and its place in the latch."""

    def __init__(self, access: Access, planner: Planner, candidate: str, ttl: float) -> None:
        self.ttl = ttl
        self._access = access
        self._planner = planner
        self._candidate = candidate
        # Before the session: from its first moment on there is someone to end it.
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
        self._connection.close()
        self._guardian.dismiss()

    def rest(self, stop: threading.Event) -> None:
        """Wait until there may be something to do."""
        deadline = Deadline.after(self.ttl / 3)
        while not (self._turn.is_set() or deadline.expired or stop.wait(_POLL)):
            pass
        self._turn.clear()

    def look(self, deadline: Deadline) -> LeadershipLease | None:
        """Take a place in the latch, and the lead if that is the first one."""
        self._keep_place(deadline)
        ahead = self._ahead(deadline)
        if ahead is None:
            self._turn.set()  # Whatever comes of it, there is no reason to rest.
            return self._take(deadline) if self._session else None
        if ahead != self._watched:
            self._watched = ahead
            self._watch(ahead)
        return None

    # -- the latch -------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return f"{self._planner.layout.latch}/{name}"

    def _keep_place(self, deadline: Deadline) -> None:
        """Have a znode of the present session in the latch."""
        session = self._connection.session
        if session is None:
            raise Unavailable(f"{self._access.where}: not connected")
        if session[0] == self._session:
            return
        self._guardian.guard(close_session.secret_of(session))
        # A name of its own, so that it is found again where the reply is lost.
        self._place = uuid.uuid4().hex
        made = codec.create(
            self._path(self._place), self._candidate.encode(), self._planner.acl, ephemeral=True
        )
        try:
            request = self._connection.write([made], deadline)
        except OutcomeUnknown:
            pass  # Looked for, and in the worst case made under another name.
        else:
            _check(request, self._access.where)
        self._session, self._watched = session[0], ""

    def _ahead(self, deadline: Deadline) -> str | None:
        """Return the candidate before us, or None if we are the first or have lost our place."""
        latch = self._planner.layout.latch
        (names,) = read(self._connection, [codec.get_children(latch)], deadline)
        if not isinstance(names, list) or self._place not in names:
            self._session = 0
            return None
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
        def told(request: Request) -> None:
            if request.reply is None:
                self._watched = ""
                self._turn.set()  # It is gone already, or has to be asked again.

        def fired(_: Any) -> None:
            self._watched = ""
            self._turn.set()

        path = self._path(name)
        self._connection.submit(
            Request(codec.EXISTS, codec.text(path) + b"\1", told, path=path, watcher=fired)
        )

    # -- the epoch -------------------------------------------------------------------------

    def _take(self, deadline: Deadline) -> LeadershipLease | None:
        """Bump the epoch; None if the place is lost, or somebody else was faster."""
        sent = lease_time()
        sight, value = self._epoch(deadline)
        current = None if value is None else decode(EpochRecord, value, EPOCH_KEY)
        epoch = current.epoch + 1 if current else 1
        ours = encode(EpochRecord(epoch, self._candidate, uuid.uuid4().hex))
        bump: Op = Create(EPOCH_KEY, ours) if sight is None else (
            Update(EPOCH_KEY, ours, sight.version)
        )  # fmt: skip
        plan = self._planner.plan([bump], None, {EPOCH_KEY: sight})
        if sight is None:
            made = self._planner.directory(directory_of(EPOCH_KEY))
            _check(self._connection.write(made, deadline), self._access.where, codec.NODE_EXISTS)
        try:
            request = self._connection.write(
                [codec.check(self._path(self._place)), *plan.operations], deadline
            )
        except OutcomeUnknown:
            pass  # Read back: the token tells whether it was us.
        else:
            assert request.reply is not None
            failed = codec.failure(*request.reply)
            if failed is not None and failed[1] == codec.NO_AUTH:
                raise refusal(failed[1], self._access.where)
            if failed is not None:
                self._session = 0 if failed[0] == 0 else self._session
                return None
        sight, value = self._epoch(deadline)
        if sight is None or value != ours:
            return None
        return self._lead(epoch, sight, sent)

    def _epoch(self, deadline: Deadline) -> tuple[CachedVersion | None, bytes | None]:
        shard, record = read(self._connection, self._planner.look([EPOCH_KEY]), deadline)
        sight = self._planner.seen(EPOCH_KEY, shard, record)
        return sight, record.value if isinstance(record, codec.Node) else None

    def _lead(self, epoch: int, sight: CachedVersion, sent: float) -> LeadershipLease:
        layout = self._planner.layout
        checks = [
            codec.check(self._path(self._place)),
            codec.check(layout.shard(EPOCH_KEY), sight.guard.deletions),
            codec.check(layout.record(EPOCH_KEY), sight.writes),
        ]

        def beat(deadline: Deadline) -> None:
            # A write that changes nothing: it has to pass a majority of the servers. A read would
            # be answered by one that is cut off from the others, while those end the session.
            request = self._connection.write(checks, deadline)
            assert request.reply is not None
            failed = codec.failure(*request.reply)
            if failed is not None:
                ended = "its session has ended" if failed[0] == 0 else "a newer epoch exists"
                raise Fenced(f"epoch {epoch} is over: {ended}")

        return LeadershipLease(
            epoch,
            Fence(epoch, sight.version),
            ttl=self._connection.granted,
            sent=sent,
            beat=beat,
            end=self._connection.close,
            held=self._guardian.lifeline,
            guardian=self._guardian,
        )


def _check(request: Request, where: str, *fine: int) -> None:
    assert request.reply is not None
    failed = codec.failure(*request.reply)
    if failed is not None and failed[1] not in fine:
        raise refusal(failed[1], where)
