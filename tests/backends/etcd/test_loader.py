"""The etcd3 package on today's protobuf: it does not import by itself, and does through us."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

LOAD = "from jrs.backends.etcd._etcd3 import grpc, rpc"
USE = """
request = rpc.RangeRequest(key=b"k", limit=7)
assert rpc.RangeRequest.FromString(request.SerializeToString()) == request
rpc.KVStub(grpc.insecure_channel("127.0.0.1:1"))
"""
SAME_NAMES = """
from google.protobuf import descriptor_pb2, descriptor_pool
for name in ("kv", "auth", "rpc"):
    file = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", package="somebody.elses")
    descriptor_pool.Default().Add(file)
    descriptor_pool.Default().FindFileByName(f"{name}.proto")
"""


def run(program: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    return subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(program)],
        env=kept | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_package_by_itself_does_not_import() -> None:
    """Protobuf refuses its generated code. Should this fail one day our loader can go."""
    failed = run("import etcd3")
    assert failed.returncode != 0
    assert "Descriptors cannot be created directly" in failed.stderr


@pytest.mark.parametrize("implementation", ["", "python"])
def test_ours_loads_without_a_warning(implementation: str) -> None:
    """On protobuf's C implementation, and on the one in Python."""
    environment = {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": implementation}
    loaded = run(LOAD + USE, "-W", "error", **{k: v for k, v in environment.items() if v})
    assert (loaded.returncode, loaded.stderr) == (0, "")


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_ours_lies_next_to_files_of_the_same_name(first: str) -> None:
    """Protobuf's default pool has one `rpc.proto`, the first one; ours is in a pool of its own."""
    parts = [LOAD, SAME_NAMES] if first == "ours" else [SAME_NAMES, LOAD]
    loaded = run("\n".join(parts) + USE, "-W", "error")
    assert (loaded.returncode, loaded.stderr) == (0, "")


def test_the_whole_package_imports_afterwards() -> None:
    """So its client can be used next to ours in one process."""
    loaded = run(LOAD + "; import etcd3; etcd3.client(port=1)")
    assert (loaded.returncode, loaded.stderr) == (0, "")


def test_grpc_in_front_of_us_is_warned_of() -> None:
    """Then its fork handlers are on already, unless the environment turned them off."""
    late = run("import grpc; import jrs.backends.etcd.backend")
    assert "GRPC_ENABLE_FORK_SUPPORT=0" in late.stderr

    early = run(
        "import grpc; import jrs.backends.etcd.backend", "-W", "error", GRPC_ENABLE_FORK_SUPPORT="0"
    )
    assert (early.returncode, early.stderr) == (0, "")


def test_fork_handlers_are_off_for_grpc_and_its_children() -> None:
    said = run(LOAD + "; import os; print(os.environ['GRPC_ENABLE_FORK_SUPPORT'])")
    assert said.stdout == "0\n"
