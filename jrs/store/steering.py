"""Steering a cluster: pausing it, and handing its leadership over, by durable requests.

A request needs no leader. Repeating one is harmless.
"""

from __future__ import annotations

import time

import attrs

from jrs.contract.backend import Backend
from jrs.contract.clock import Clock, Deadline
from jrs.contract.errors import Conflict, NotFound, OutcomeUnknown, WrongState
from jrs.contract.masks import masked
from jrs.contract.operations import Check, Create, Delete, Op, create_or_update
from jrs.contract.read_back import commit_and_read_back, still_unknown
from jrs.contract.texts import did_you_mean
from jrs.records import keys
from jrs.records.cluster import PauseRecord, SwitchoverRecord
from jrs.records.codec import decode, encode
from jrs.records.history import HistoryKind
from jrs.records.model import MasterInfo
from jrs.store import cluster_history
from jrs.store.cluster_format import too_old
from jrs.store.masters import MasterRole, MasterView, Registry, newest_epoch

_FORMAT = 5


@attrs.frozen
class Steering:
    """The pause and the switchovers of one cluster."""

    backend: Backend
    now: Clock = time.time

    def paused(self) -> PauseRecord | None:
        """Return the pause; None if the cluster is not paused.

        Raises:
            CorruptRecord: the record cannot be read. The cluster is paused all the same.
        """
        stored = self.backend.get(keys.PAUSE)
        return None if stored is None else decode(PauseRecord, stored.value, stored.key)

    def pause(self, by: str, reason: str) -> PauseRecord:
        """Have no attempt begin from now on; return the pause, which may be an earlier one.

        Durable, idempotent. Once it returns, no attempt begins: each begins by a commit that a
        pause refuses.

        Raises:
            WrongState: the cluster's format is too old. Nothing was changed.
        """
        self._check_format("a pause")
        pause = PauseRecord(self.now(), by, masked(reason))
        said = cluster_history.with_bounded_reason("paused the cluster", reason)
        while (before := self.paused()) is None:
            try:
                own = Create(keys.PAUSE, encode(pause))
                event = self._recorded(HistoryKind.PAUSED, by, said)
                commit_and_read_back(self.backend, own, *event)
            except Conflict:
                continue  # It was paused, or another event was recorded meanwhile.
            return pause
        return before

    def unpause(self, by: str) -> bool:
        """End the pause; return whether there was one. Durable, idempotent."""
        while self.backend.get(keys.PAUSE) is not None:
            try:
                event = self._recorded(HistoryKind.UNPAUSED, by, "ended the pause of the cluster")
                self.backend.commit(Delete(keys.PAUSE), *event)
            except Conflict:
                continue  # It was ended, or another event was recorded meanwhile.
            except OutcomeUnknown as unknown:
                with still_unknown(unknown):
                    if self.backend.get(keys.PAUSE) is not None:
                        raise
            return True
        return False

    def switchover(self) -> SwitchoverRecord | None:
        """Return the newest request for a switchover, carried out or not; None if none was made.

        Raises:
            CorruptRecord: the record cannot be read.
        """
        stored = self.backend.get(keys.SWITCHOVER)
        return None if stored is None else decode(SwitchoverRecord, stored.value, stored.key)

    def request_switchover(self, to: str | None, by: str, reason: str) -> SwitchoverRecord | None:
        """Have the leader resign, and the others let master `to` go first; return the request.

        None if `to` leads already. Durable, idempotent. If `to` fails to lead within a few seconds,
        any master does.

        Args:
            to: a master; None: the one that has run longest among those that do not lead.

        Raises:
            NotFound: no master of that name is registered.
            WrongState: no master leads, `to` is gone or was not heard since it led, no other one
                runs, the cluster's format is too old, or the leadership has just changed. Nothing
                was changed.
        """
        self._check_format("a switchover")
        views = Registry(self.backend, now=self.now).views()
        named = None if to is None else _named(views, to)
        if named is not None and named.role is MasterRole.LEADER:
            return None
        epoch = newest_epoch(self.backend)
        leads = [view for view in views if view.role is MasterRole.LEADER]
        if epoch is None and (known := Registry(self.backend, now=self.now).leading()).problem:
            raise WrongState(str(known))
        if epoch is None or not leads:
            raise WrongState("no master leads now: a switchover needs a leader that resigns")
        if named is None:
            others = [view.info for view in views if view.role is MasterRole.STANDBY]
            if not others:
                raise WrongState(
                    f"no other master runs than {leads[0].info.name!r}, which leads: start one"
                )
            name = min(others, key=lambda info: (info.started_at, info.name)).name
        elif named.role is MasterRole.GONE:
            raise WrongState(f"master {named.info.name!r} is gone: it cannot lead")
        elif named.role is MasterRole.FORMER:
            raise WrongState(
                f"master {named.info.name!r} lost its lead of epoch {named.info.leading}, and was "
                "not heard since: it may be dead; wait until 'jrs masters' shows that it stands by"
            )
        else:
            name = named.info.name
        return self._request(SwitchoverRecord(epoch.epoch, name, self.now(), by, masked(reason)))

    def wait_for_leader(self, after: int, timeout: float | None) -> MasterInfo:
        """Wait until a master leads in an epoch above `after`; return it.

        Raises:
            TimeoutError: none leads within `timeout` seconds.
        """
        deadline = Deadline.of_wait(timeout)
        registry = Registry(self.backend, now=self.now)
        with self.backend.watch(keys.MASTERS) as watch:
            while True:
                for view in registry.views():
                    if view.role is MasterRole.LEADER and (view.info.leading or 0) > after:
                        return view.info
                if deadline.expired:
                    raise TimeoutError(f"no master leads after {timeout:g} s")
                watch.wait(min(1.0, deadline.remaining()))

    def _request(self, request: SwitchoverRecord) -> SwitchoverRecord:
        fence = self.backend.get(keys.EPOCH)
        stored = self.backend.get(keys.SWITCHOVER)
        if stored is not None:
            before = decode(SwitchoverRecord, stored.value, stored.key)
            if (before.epoch, before.to) == (request.epoch, request.to):
                return before
        newest = newest_epoch(self.backend)
        if fence is None or newest is None or newest.epoch != request.epoch:
            raise WrongState("the leadership has just changed: check it with jrs masters")
        value = encode(request)
        operation = create_or_update(keys.SWITCHOVER, value, stored and stored.version)
        said = cluster_history.with_bounded_reason(
            f"requested a switchover to {request.to}", request.reason
        )
        event = self._recorded(HistoryKind.SWITCHOVER, request.by, said)
        try:
            own_epoch = Check(keys.EPOCH, fence.version)
            commit_and_read_back(self.backend, operation, own_epoch, *event)
        except Conflict:
            if [fence, stored] == [self.backend.get(key) for key in (keys.EPOCH, keys.SWITCHOVER)]:
                return self._request(request)  # Another event was recorded meanwhile.
            raise WrongState(
                "the leadership has just changed, or another switchover was requested: check it "
                "with jrs masters"
            ) from None
        return request

    def _recorded(self, kind: HistoryKind, by: str, text: str) -> tuple[Op, ...]:
        return cluster_history.steered(self.backend, kind, by, text, self.now)

    def _check_format(self, what: str) -> None:
        if why := too_old(self.backend, _FORMAT, what):
            raise WrongState(why)


def _named(views: list[MasterView], name: str) -> MasterView:
    for view in views:
        if view.info.name == name:
            return view
    known = [view.info.name for view in views]
    raise NotFound(f"there is no master {name!r}{did_you_mean(name, known)}")
