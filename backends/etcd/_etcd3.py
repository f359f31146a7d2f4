"""The messages and stubs of the `etcd3` package, on whatever protobuf is installed.

etcd3 0.12.0 (the last release) carries generated code that no protobuf since 4 accepts. What that
code describes is right, though: so the descriptors are read out of the installed package, never
executed, and built with today's protobuf, in a pool of their own that nobody else's messages can
clash with. Everything that speaks to etcd imports from here.

gRPC's fork handlers abort or hang children that are forked next to a live channel, as PySpark forks
its JVM (grpc/grpc#43055). They are turned off before grpc is first imported.
"""

from __future__ import annotations

import ast
import os
import sys
import types
import warnings
from importlib.metadata import distribution
from typing import Any

_FORK = "GRPC_ENABLE_FORK_SUPPORT"

if "grpc" in sys.modules and os.environ.get(_FORK) != "0":
    warnings.warn(
        f"grpc was imported before jrs could set {_FORK}=0: processes forked next to it, such as a "
        "JVM that PySpark starts, may abort; set it in the environment",
        RuntimeWarning,
        stacklevel=2,
    )
os.environ.setdefault(_FORK, "0")
# It prints a line for every handshake that fails; what matters of it is in the errors.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

_REBUILT = "0.12.0"
_MODULES = ("kv", "auth", "rpc")  # Each builds on those before it.


def _load() -> Any:
    found = distribution("etcd3")
    if found.version == _REBUILT and "etcd3" not in sys.modules:
        from google.protobuf import descriptor_pool
        from google.protobuf.internal import builder

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
    import etcd3.etcdrpc

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
    raise ImportError("etcd3's generated code holds no descriptor: install etcd3==0.12.0")


rpc = _load()
"""The messages and stubs of etcd's gRPC interface."""

import grpc  # noqa: E402  Only now that its fork handlers are off.

__all__ = ["grpc", "rpc"]
