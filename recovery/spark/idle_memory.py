"""Giving memory back that a session does not need while it waits."""

from __future__ import annotations

import ctypes
import gc
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Imported inside functions: py4j, since attempts without Spark load this module, too.

_SPARE = {"MinHeapFreeRatio": ("5", "40"), "MaxHeapFreeRatio": ("10", "70")}
"""By option of the JVM: the share of its heap that it keeps free while it waits, and usually."""


JAVA = "--add-opens=jdk.management/com.sun.management.internal=ALL-UNNAMED"
"""The option with which a JVM lets Py4J set its options."""


def give_back(session: SparkSession) -> None:
    """Shrink the heap of the JVM, and this process, to what is in use. They grow again as needed.

    Does less where a JVM lacks what it needs for that.
    """
    jvm: Any = session.sparkContext._jvm
    _set_options(jvm, {option: waiting for option, (waiting, _) in _SPARE.items()})
    jvm.System.gc()
    _set_options(jvm, {option: usual for option, (_, usual) in reversed(_SPARE.items())})
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def _set_options(jvm: Any, options: dict[str, str]) -> None:
    """Set options of the JVM that may be set while it runs."""
    from py4j.protocol import Py4JError

    try:
        kind = jvm.Class.forName("com.sun.management.HotSpotDiagnosticMXBean")
        bean = jvm.java.lang.management.ManagementFactory.getPlatformMXBean(kind)
        for option, value in options.items():
            bean.setVMOption(option, value)
    except Py4JError:
        pass
