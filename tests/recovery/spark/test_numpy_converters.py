"""What PySpark's converters are asked about, and what they import for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys
from jrs.recovery.spark.numpy_converters import spare_others
spare_others()
spare_others()
from pyspark.sql import types
both = types.NumpyArrayConverter(), types.NumpyScalarConverter()
print([one.can_convert(other) for one in both for other in (True, "text", [1], None)])
print(sorted({"pandas", "pyarrow", "numpy", "grpc", "pyspark.testing"} & set(sys.modules)))
import types as kinds
sys.modules["numpy"] = kinds.ModuleType("numpy")  # Another thread is importing it.
print([one.can_convert("text") for one in both])
del sys.modules["numpy"]
import numpy
print([one.can_convert(other) for one in both for other in (1, numpy.int64(1), numpy.array([1]))])
print([one.can_convert(numpy.array([[1]])) for one in both])
"""


def test_only_objects_of_numpy_are_looked_at() -> None:
    """Nothing is imported for any other object, and those of numpy are converted as before."""
    pytest.importorskip("pyspark")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT], capture_output=True, text=True, timeout=60
    )

    assert done.stdout.splitlines() == [
        str([False] * 8),
        "[]",
        "[False, False]",
        "[False, False, True, False, True, False]",
        "[False, False]",
    ], done.stderr
