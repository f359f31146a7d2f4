"""Sending code of jrs to Spark's Python workers, which may not have jrs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import cloudpickle

from ..files import sync as sync_module
from . import history_stream, sink, source, table_source


@contextmanager
def sink_by_value() -> Iterator[None]:
    """Have pickles that are made meanwhile contain the format of jrs, and not its name."""
    modules = (sink, source, table_source, history_stream, sync_module)
    for module in modules:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]
