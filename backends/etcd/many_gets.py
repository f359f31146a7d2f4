"""Reading many keys by their names: as many in one request as a server takes, and sends in time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from jrs.contract.clock import Deadline
from jrs.contract.errors import TooLarge, Unavailable

from . import page_sizes
from ._etcd3 import rpc
from .connection import BULK, Connection

_MOST = 128
"""The operations of one request that etcd takes if its settings do not say otherwise."""


class ManyGets:
    """Reads of a handle, which learn from each request how large the next one may be."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.most = _MOST
        """Keys of one request: a server may take fewer than usual."""

    def each(self, names: Sequence[bytes], deadline: Deadline) -> Iterator[Any]:
        """Yield what etcd has of each key, in their order: a `KeyValue`, or None.

        Sends a request only when what it answers is wanted.

        Raises:
            TooLarge, Unavailable: also a single key cannot be read.
            AccessDenied: no permission on one of the keys.
        """
        at, size = 0, self.most
        while at < len(names):
            wanted = names[at : at + size]
            share = deadline if len(wanted) == 1 else Deadline.after(deadline.remaining() / 2)
            try:
                page = self._request(wanted, share)
            except TooLarge:
                if len(wanted) == 1:
                    raise
                self.most = size = len(wanted) // 2
                continue
            except Unavailable:
                if len(wanted) == 1 or self._connection.closed:
                    raise
                # The page may be too large to be sent in time.
                size = max(1, len(wanted) // page_sizes.GROWTH)
                continue
            yield from page
            at += len(page)
            weight = sum(len(one.value) for one in page if one is not None) // len(page)
            fitting = page_sizes.fitting(weight + page_sizes.OVERHEAD)
            size = min(self.most, page_sizes.GROWTH * size, fitting)

    def _request(self, names: Sequence[bytes], deadline: Deadline) -> list[Any]:
        gets = [rpc.RequestOp(request_range=rpc.RangeRequest(key=name)) for name in names]
        answer = self._connection.read(
            lambda stubs: stubs.kv.Txn, rpc.TxnRequest(success=gets), deadline, attempt=BULK
        )
        found = (one.response_range.kvs for one in answer.responses)
        return [kvs[0] if kvs else None for kvs in found]
