"""Connection: tries the members in turn, with a deadline on every call and typed errors.

A request that certainly reached no member is tried on the next one. A request that may have been
carried out is `OutcomeUnknown`, and is never repeated here.

Every request requires a leader: a member without a leader then fails at once, instead of accepting
a write that is dropped, or keeping a watch that receives nothing. A write goes only to a member
whose last call was answered; otherwise the member is probed first. So a server that hangs or is
gone makes the outcome of one write unknown, not of each.

Every answer names the etcd that its member belongs to. A handle uses the etcd of its first answer,
and takes no answer of another one: a member that was made again has other records, and so has an
etcd that was restored.
When no member can be reached and the files of certificates have changed, the channels are replaced.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakSet

from jrs.contract.clock import Deadline
from jrs.contract.errors import HandleClosed, InvalidInput, JrsError, Unavailable, WrongProcess
from jrs.host.fork import forget_in_children
from jrs.host.reloading import stamp_of

from ..remote.address import Address
from ..remote.signal_safe_calls import SignalSafeCalls
from ..remote.tls import load
from ._etcd3 import grpc, rpc
from .error_mapping import (
    NeverSent,
    OtherEtcd,
    answered,
    auth_is_off,
    expired,
    is_down,
    not_logged_in,
    outdated,
    translate_error,
    words,
)
from .members import Stubs, members_of

ATTEMPT = 1.5
"""Seconds for one member at first: longer than an election, during which requests hang."""

WRITE = 3.0
"""Most seconds for a write. A write without an answer by then was dropped in an election, or is on
a member that hangs: an early read-back is worth more to a caller than waiting for the deadline."""

BULK = 3.0
"""Seconds for one member to send a large answer."""

_PAUSES = (0.05, 0.5)
"""Seconds between rounds of all members: at first, and at most."""
_LAST_PAUSE = 0.02
"""Seconds of the shortest pause. A shorter one would end too close to the deadline."""

_LEADER = ("hasleader", "true")
Method = Callable[[Stubs], Callable[..., Any]]


class _Tries:
    """The tries of one call, in rounds of all members, and how long each may take.

    A member that hangs is left early. But after a round in which most of the members that are up
    were silent, all may be slow: then each may take twice as long. And a member may take twice as
    long as its last answer. Neither takes more than half of the time that is left, unless there is
    no other member.
    """

    def __init__(self, members: int, deadline: Deadline) -> None:
        self._members = members
        self._deadline = deadline
        self._failed = self._silent = self._down = self._doubled = 0

    def seconds(self, stubs: Stubs, attempt: float, *, grows: bool = True) -> float:
        """Return how long a member may take that usually may take `attempt` seconds."""
        left = self._deadline.bounded()
        longer = max(attempt * (1 << self._doubled if grows else 1), 2 * stubs.pace)
        most = left if self._members == 1 else left / 2
        return min(left, max(attempt, min(longer, most)))

    def failed(self, error: Any) -> bool:
        """Count a failure; return whether it ends a round."""
        self._failed += 1
        self._silent += error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        self._down += is_down(error)
        if self._failed < self._members:
            return False
        self._doubled += 2 * self._silent > self._members - self._down
        self._failed = self._silent = self._down = 0
        return True


class Connection:
    """The channels to all members, and the token of our user. Safe for use by many threads."""

    def __init__(self, address: Address) -> None:
        self.address = address
        # The stamp first: a file that is replaced in between is read again.
        self._stamp = address.tls and stamp_of(*address.tls.files)
        self._members = members_of(address)
        self._renewing = threading.Lock()
        self._replaced: WeakSet[Any] = WeakSet()
        """Channels that others have replaced, as long as calls use them."""
        # Masters that start together should not all ask the same member.
        self._current = random.randrange(len(self._members))
        self._login = threading.Lock()
        self._token: str | None = None
        self._etcd = 0
        self._over = threading.Event()
        self.safe_calls = SignalSafeCalls("jrs-etcd-calls")
        self._forked = False
        forget_in_children(self)

    @property
    def closed(self) -> bool:
        return self._over.is_set()

    def read(
        self, method: Method, request: Any, deadline: Deadline, *, attempt: float = ATTEMPT
    ) -> Any:
        """Call a read or an idempotent write, repeatedly within the deadline.

        Args:
            attempt: seconds for one member at first; see `_Tries`.

        Raises:
            Unavailable: no member answered in time.
            Refused, InvalidInput: the request was refused.
        """
        return self._call(method, request, deadline, attempt, wrote=False)

    def write(self, method: Method, request: Any, deadline: Deadline) -> Any:
        """Call a write at most once, for no longer than `WRITE`, or than twice the time that the
        member's last answer took.

        Raises:
            Unavailable: the request was certainly not carried out.
            OutcomeUnknown: the request may have been carried out.
            Refused, InvalidInput: the request was refused.
        """
        return self._call(method, request, deadline, WRITE, wrote=True)

    def stream(self, method: Method, requests: Any) -> Any:
        """Open a stream to the current member. It also raises gRPC's own errors."""
        stubs = self._members[self._current]
        return method(stubs)(requests, metadata=self._metadata(stubs, Deadline.after(ATTEMPT)))

    def each(self, method: Method, request: Any, timeout: float) -> list[Any]:
        """Ask every member once; return its answer or its error."""
        found: list[Any] = []
        for stubs in self._members:
            try:
                # Without the leader requirement: members without a leader shall answer, too.
                metadata = self._metadata(stubs, Deadline.after(timeout))[1:]
                found.append(method(stubs)(request, timeout=timeout, metadata=metadata))
            except (grpc.RpcError, JrsError) as error:
                found.append(error)
        return found

    def check_etcd(self, answer: Any, member: str) -> None:
        """Raise `OtherEtcd`, an error of gRPC, if `member` answers for another etcd than ours."""
        found = answer.header.cluster_id
        self._etcd = self._etcd or found
        if found not in (0, self._etcd):  # A proxy may leave it out.
            raise OtherEtcd(member, found, self._etcd)

    def next_member(self) -> None:
        """Switch to the next member, because the current one does not answer."""
        self._current = (self._current + 1) % len(self._members)

    def close(self) -> None:
        """Close all channels, which ends all waiting calls. Idempotent."""
        if self._forked:
            return
        self._over.set()
        for channel in [*self._replaced, *(stubs.channel for stubs in self._members)]:
            channel.close()
        self.safe_calls.close(ATTEMPT)

    @property
    def forked(self) -> bool:
        return self._forked

    def forget(self) -> Iterable[int]:
        self._forked = True
        return ()

    def check_process(self) -> None:
        """Raise `WrongProcess` in a forked child, where neither our nor gRPC's threads run."""
        if self._forked:
            raise WrongProcess(
                f"{self.address.url} was opened before a fork: open it again in the child"
            )

    # -- inside ----------------------------------------------------------------------------

    def _call(
        self, method: Method, request: Any, deadline: Deadline, attempt: float, *, wrote: bool
    ) -> Any:
        self.check_process()
        return self.safe_calls.run(
            lambda: self._ask(method, request, deadline, attempt, wrote=wrote)
        )

    def _ask(
        self, method: Method, request: Any, deadline: Deadline, attempt: float, *, wrote: bool
    ) -> Any:
        reasons: dict[str, str] = {}
        pause, longest = _PAUSES
        tries = _Tries(len(self._members), deadline)
        while not deadline.expired:
            self._check_open()
            stubs = self._members[self._current]
            metadata = [_LEADER]
            began = deadline.clock()
            try:
                if wrote and not stubs.answers:
                    self._probe(stubs, deadline, tries.seconds(stubs, ATTEMPT))
                metadata = self._metadata(stubs, deadline, tries.seconds(stubs, ATTEMPT))
                timeout = tries.seconds(stubs, attempt, grows=not wrote)
                began = deadline.clock()
                answer = method(stubs)(request, timeout=timeout, metadata=metadata)
                self.check_etcd(answer, stubs.target)
            except grpc.RpcError as error:
                if outdated(error) or (expired(error) and len(metadata) > 1):
                    self._forget(metadata)
                    reasons[stubs.target] = words(error)
                else:
                    stubs.answers = answered(error)
                    if deadline.clock() - began >= stubs.pace:
                        stubs.pace = 0.0  # A caller with less time learns nothing about it.
                    reasons[stubs.target] = translate_error(error, self.address.url, wrote=wrote)
                    if stubs is self._members[self._current]:
                        self.next_member()
                round_ended = tries.failed(error)
            except ValueError:
                self._check_open()  # gRPC raises ValueError if its channel is closed.
                raise
            else:
                stubs.answers, stubs.pace = True, deadline.clock() - began
                return answer
            if round_ended:
                self._renew()
                # Members that refuse a connection do so at once: the pause prevents a busy loop.
                pause = min(pause, deadline.remaining() / 2)
                if pause < _LAST_PAUSE:
                    break  # The answer to another try could come too late for the caller.
                self._over.wait(pause)
                pause = min(2 * pause, longest)
        why = "; ".join(dict.fromkeys(reasons.values())) or "no answer within the deadline"
        raise Unavailable(f"{self.address.url} cannot be reached: {why}; nothing was changed")

    def _renew(self) -> None:
        """Replace the channels if the TLS files have changed, which gRPC reads only once."""
        tls = self.address.tls
        if tls is None:
            return
        with self._renewing:
            stamp = stamp_of(*tls.files)
            if stamp == self._stamp:
                return
            try:
                load(tls)  # gRPC would report what it cannot use only in the next handshake.
                members = members_of(self.address)
            except (OSError, ValueError, InvalidInput):
                return  # They are being replaced: keep the old ones until the next failure.
            # Do not close the old channels: another thread's call may still be answered.
            self._replaced.update(stubs.channel for stubs in self._members)
            self._stamp, self._members = stamp, members
        if self.closed:
            for stubs in members:
                stubs.channel.close()

    def _check_open(self) -> None:
        if self.closed:
            raise HandleClosed(f"{self.address.url}: this handle is closed: open another one")

    def _probe(self, stubs: Stubs, deadline: Deadline, timeout: float) -> None:
        """Send a read that only a member with a leader can answer, within `timeout` seconds.

        Raises:
            NeverSent: the member did not answer.
            OtherEtcd: it belongs to another etcd.
        """
        request = rpc.RangeRequest(key=b"jrs", keys_only=True)
        try:
            metadata = self._metadata(stubs, deadline, timeout)
            answer = stubs.kv.Range(request, timeout=timeout, metadata=metadata)
            self.check_etcd(answer, stubs.target)
        except (NeverSent, OtherEtcd):
            raise
        except grpc.RpcError as error:
            if not answered(error):
                raise NeverSent("not tried", error) from error

    def _metadata(
        self, stubs: Stubs, deadline: Deadline, timeout: float = ATTEMPT
    ) -> list[tuple[str, str]]:
        user = self.address.user
        if user is None:
            return [_LEADER]
        # The thread that logs in may wait for a hanging member; other threads have deadlines.
        if not self._login.acquire(timeout=deadline.bounded()):
            raise Unavailable(f"{self.address.url}: logging in took too long; nothing was changed")
        try:
            if self._token is None:
                request = rpc.AuthenticateRequest(name=user, password=self.address.password)
                within = min(timeout, deadline.bounded())
                try:
                    answer = stubs.auth.Authenticate(request, timeout=within)
                except grpc.RpcError as error:
                    if auth_is_off(error):
                        self._check_member(stubs, within)
                    raise not_logged_in(error, self.address.url, user) from error
                self._token = answer.token
            return [_LEADER, ("token", self._token)]
        finally:
            self._login.release()

    def _check_member(self, stubs: Stubs, timeout: float) -> None:
        """Raise `OtherEtcd`, or `NeverSent` if a member does not say which etcd it is of."""
        try:
            answer = stubs.maintenance.Status(rpc.StatusRequest(), timeout=timeout)
        except grpc.RpcError as error:
            raise NeverSent("logging in", error) from error
        if self._etcd:  # Its id does not become ours: no answer of it is used.
            self.check_etcd(answer, stubs.target)

    def _forget(self, metadata: list[tuple[str, str]]) -> None:
        # Without the lock, which a hanging log-in holds: at worst two threads log in.
        if ("token", self._token) in metadata:
            self._token = None


def behind(prefix: bytes) -> bytes:
    """Return the end of the range of all keys that begin with `prefix`."""
    return prefix[:-1] + bytes([prefix[-1] + 1])  # Our keys have no byte of 0xff.
