"""The messages and stubs of the `etcd3` package, for any installed version of protobuf.

etcd3 0.12.0 (the last release) contains generated code that protobuf 4 and later refuse. But its
descriptors are right. So this module reads them from the installed package without executing the
code, and builds them with the installed protobuf, in a separate pool, so that they cannot clash
with other messages. All other modules import gRPC and the messages from here.

gRPC's fork handlers abort or hang children that are forked next to a live channel, as PySpark forks
its JVM (grpc/grpc#43055). This module turns them off before grpc is first imported.
"""

from __future__ import annotations

import ast
import os
import sys
import types
import warnings
from importlib.metadata import distribution
from typing import Any

from google.protobuf import descriptor_pool
from google.protobuf.internal import builder

_FORK = "GRPC_ENABLE_FORK_SUPPORT"

if "grpc" in sys.modules and os.environ.get(_FORK) != "0":
    warnings.warn(
        f"grpc was imported before jrs could set {_FORK}=0: processes forked next to it, such as a "
        "JVM that PySpark starts, may abort; set it in the environment",
        RuntimeWarning,
        stacklevel=2,
    )
os.environ.setdefault(_FORK, "0")
# gRPC prints a line for every failed handshake; the errors contain the same information.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

_REBUILT = "0.12.0"
_MODULES = ("kv", "auth", "rpc")  # Each depends on the previous ones.


def _load() -> Any:
    found = distribution("etcd3")
    if found.version == _REBUILT and "etcd3" not in sys.modules:
        pool = descriptor_pool.DescriptorPool()
        for name in _MODULES:
            path = found.locate_file(f"etcd3/etcdrpc/{name}_pb2.py")
            with open(str(path), encoding="utf-8") as source:
                descriptor = pool.AddSerializedFile(_serialized(source.read()))
            module = types.ModuleType(f"etcd3.etcdrpc.{name}_pb2")
            module.DESCRIPTOR = descriptor  # type: ignore[attr-defined]
            builder.BuildMessageAndEnumDescriptors(descriptor, module.__dict__)
            builder.BuildTopDescriptorsAndMessages(descriptor, module.__name__, module.__dict__)
            sys.modules[module.__name__] = module
    import etcd3.etcdrpc  # It finds the modules that were made above.

    return etcd3.etcdrpc


def _serialized(source: str) -> bytes:
    """Return the descriptor in a module that protoc generated."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.keyword) and node.arg == "serialized_pb":
            for part in ast.walk(node.value):
                if isinstance(part, ast.Constant) and isinstance(part.value, (str, bytes)):
                    text = part.value
                    # Some versions of protoc wrote _b('…'), a str of bytes.
                    data = text if isinstance(text, bytes) else text.encode("latin1")
                    if len(data) > len("latin1"):
                        return data
    raise ImportError("etcd3's generated code contains no descriptor: install etcd3==0.12.0")


rpc = _load()
"""The messages and stubs of etcd's gRPC interface."""

import grpc  # noqa: E402  Only now: its fork handlers are off.

__all__ = ["grpc", "rpc"]
