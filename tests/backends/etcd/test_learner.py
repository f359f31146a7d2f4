"""A member that has joined and still learns: it answers, and can do nothing for a client."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jrs.backends.etcd import connection
from jrs.backends.etcd._etcd3 import grpc, rpc
from jrs.backends.etcd.error_mapping import answered
from jrs.backends.remote.address import Address
from jrs.contract.clock import Deadline

SAID = "etcdserver: rpc not supported for learner"


class Failed(grpc.RpcError):  # type: ignore[misc]
    def __init__(self, code: Any) -> None:
        self._code = code

    def code(self) -> Any:
        return self._code

    def details(self) -> str:
        return SAID


class Keys:
    """The requests of one member. `code` is what a learner answers; None for any other member."""

    def __init__(self, code: Any) -> None:
        self._code = code
        self.asked = 0

    def Range(self, *_: Any, **__: Any) -> Any:
        self.asked += 1
        if self._code is not None:
            raise Failed(self._code)
        return rpc.RangeResponse()


# No server here answers with the code of etcd 3.6, so these members are made up.
@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION])
@pytest.mark.parametrize("verb", ["read", "write"])
def test_a_request_that_comes_to_a_learner(code: Any, verb: str) -> None:
    """Both in the form of etcd 3.4 and in that of 3.6 the next member is asked."""
    made = connection.Connection(Address.parse("etcd://127.0.0.1:1,127.0.0.1:2", default_port=2379))
    learner, healthy = Keys(code), Keys(None)
    members: list[Any] = [
        SimpleNamespace(target="h", kv=each, answers=False, pace=0.0) for each in (learner, healthy)
    ]
    made._members = members
    made._current = 0

    reply = getattr(made, verb)(
        lambda member: member.kv.Range, rpc.RangeRequest(key=b"x"), Deadline.after(10.0)
    )

    assert isinstance(reply, type(rpc.RangeResponse()))
    assert learner.asked >= 1
    assert healthy.asked >= 1
    assert not answered(Failed(code))
