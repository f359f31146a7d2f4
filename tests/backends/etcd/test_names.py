"""The generated names of etcd3, and the internal names of protobuf, that this backend is built on.

Neither package promises to keep them. If a name of etcd3 is gone: read the new `etcdrpc/*_pb2.py`
in its wheel, follow it in `backends/etcd`, and change the pin of etcd3 in pyproject.toml once the
tests of this folder pass. If a name of protobuf is gone: read what its newest protoc puts into a
`_pb2.py`, let `backends/etcd/_etcd3.py` call the same, and give protobuf an upper bound until then.
"""

from __future__ import annotations

import ast
import inspect
from collections import defaultdict
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pool
from google.protobuf.internal import builder

from jrs.backends.etcd import _etcd3
from jrs.backends.etcd._etcd3 import grpc, rpc

BACKEND = Path(__file__).parents[3] / "backends" / "etcd"

REQUESTS = {
    "AuthenticateRequest": {"name", "password"},
    "Compare": {
        *("create_revision", "key", "mod_revision", "result", "target", "value", "version"),
    },
    "DeleteRangeRequest": {"key"},
    "LeaseGrantRequest": {"TTL"},
    "LeaseKeepAliveRequest": {"ID"},
    "LeaseRevokeRequest": {"ID"},
    "PutRequest": {"key", "lease", "value"},
    "RangeRequest": {
        *("key", "keys_only", "limit"),
        *("min_create_revision", "range_end", "revision"),  # By keywords of `EtcdBackend._range`.
    },
    "RequestOp": {"request_delete_range", "request_put", "request_range", "request_txn"},
    "StatusRequest": set[str](),
    "TxnRequest": {"compare", "failure", "success"},
    "WatchCreateRequest": {"key", "range_end"},
    "WatchRequest": {"create_request"},
}
"""The messages that are made, and their fields that are set."""

COMPARISONS = ("CREATE", "EQUAL", "GREATER", "MOD", "VALUE", "VERSION")
"""The values of the enums of `Compare`."""

ANSWERS = {
    "AuthenticateResponse": ("token",),
    "LeaseGrantResponse": ("ID", "TTL", "header.cluster_id"),
    "LeaseKeepAliveResponse": ("TTL", "header.cluster_id"),
    "LeaseRevokeResponse": ("header.cluster_id",),
    "RangeResponse": (
        *("header.cluster_id", "header.revision"),
        *("kvs.key", "kvs.mod_revision", "kvs.value", "more"),
    ),
    "StatusResponse": ("dbSize", "header.cluster_id", "header.member_id", "leader", "version"),
    "TxnResponse": (
        *("responses.response_range.kvs.mod_revision", "responses.response_txn.responses"),
        *("responses.response_txn.succeeded", "succeeded", "header.cluster_id"),
    ),
    "WatchResponse": ("canceled", "events.kv.key", "header.cluster_id"),
}
"""The messages that come back, and what is read of them, down to the fields of their fields."""

CALLS = {
    "AuthStub": {"Authenticate"},
    "KVStub": {"Put", "Range", "Txn"},
    "LeaseStub": {"LeaseGrant", "LeaseRevoke"},
    "MaintenanceStub": {"Status"},
    "WatchStub": {"Watch"},
}
"""The stubs, and their calls."""

INTERNAL = {
    "BuildMessageAndEnumDescriptors": ("file_des", "module"),
    "BuildTopDescriptorsAndMessages": ("file_des", "module_name", "module"),
}
"""The functions of `google.protobuf.internal.builder`, and their parameters."""


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_has(name: str) -> None:
    """The message exists, with the fields that are set."""
    assert REQUESTS[name] <= fields(name), __doc__


@pytest.mark.parametrize("name", COMPARISONS)
def test_a_comparison_is(name: str) -> None:
    """The value exists, as an attribute of its message."""
    assert isinstance(getattr(rpc.Compare, name, None), int), __doc__


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_has(name: str) -> None:
    """The message exists, with the fields that are read."""
    for path in ANSWERS[name]:
        message = getattr(rpc, name).DESCRIPTOR
        for part in path.split("."):
            assert message is not None, __doc__
            assert part in message.fields_by_name, f"{name}.{path} is gone. {__doc__}"
            message = message.fields_by_name[part].message_type


@pytest.mark.parametrize("name", CALLS)
def test_a_stub_has(name: str) -> None:
    """The stub exists, with the calls."""
    with grpc.insecure_channel("127.0.0.1:1") as channel:
        stub = getattr(rpc, name)(channel)
        assert [call for call in CALLS[name] if not hasattr(stub, call)] == [], __doc__


@pytest.mark.parametrize("name", INTERNAL)
def test_protobuf_builds_by(name: str) -> None:
    """The function exists, and takes what we give it."""
    function = getattr(builder, name, None)
    assert function is not None, __doc__
    assert tuple(inspect.signature(function).parameters) == INTERNAL[name], __doc__
    assert hasattr(descriptor_pool.DescriptorPool, "AddSerializedFile"), __doc__


@pytest.mark.parametrize("name", _etcd3._MODULES)
def test_the_wheel_has_descriptors(name: str) -> None:
    """Each generated file has its descriptor where we look for it."""
    found = distribution("etcd3")
    assert found.version == _etcd3._REBUILT, __doc__
    source = Path(str(found.locate_file(f"etcd3/etcdrpc/{name}_pb2.py"))).read_text()
    assert _etcd3._serialized(source).startswith(b"\n"), __doc__


def test_no_other_name_is_used() -> None:
    """What the backend makes, sets, calls and compares with is in the lists above, and no more."""
    made: defaultdict[str, set[str]] = defaultdict(set)
    calls, comparisons, internal = set(), set(), set()
    for path in BACKEND.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and (name := message(node.func)):
                made[name] |= {keyword.arg for keyword in node.keywords if keyword.arg}
            elif isinstance(node, ast.Attribute):
                owner = ast.unparse(node.value)
                if owner in ("rpc.Compare", "compare"):
                    comparisons.add(node.attr)
                elif owner == "builder":
                    internal.add(node.attr)
                elif owner.startswith("stubs.") and owner != "stubs.channel":
                    calls.add(node.attr)
    stubs = {name for name in made if name.endswith("Stub")}
    by_keywords = {"min_create_revision", "range_end", "revision"}

    assert stubs == set(CALLS)
    assert calls == set().union(*CALLS.values())
    assert made["RangeRequest"] == REQUESTS["RangeRequest"] - by_keywords
    assert {name: made[name] for name in set(made) - stubs - {"RangeRequest"}} == {
        name: some for name, some in REQUESTS.items() if name != "RangeRequest"
    }
    assert comparisons == set(COMPARISONS)
    assert internal == set(INTERNAL)


def message(function: ast.expr) -> str:
    """Return the name of the message or stub that a call makes; empty if it makes none."""
    name = ast.unparse(function)
    return "Compare" if name == "compare" else name[4:] if name.startswith("rpc.") else ""


def fields(name: str) -> set[str]:
    """Return the fields of a message."""
    found: Any = getattr(rpc, name, None)
    assert found is not None, f"{name} is gone. {__doc__}"
    return set(found.DESCRIPTOR.fields_by_name)
