"""PySpark's converters for numpy, without what they import for every other object.

py4j asks them about each argument of each call into the JVM. To see whether numpy is installed,
they import `pyspark.testing`, and with it pandas, pyarrow and gRPC, if these are installed: some
0.4 s of processor in each process that starts a session. An object can be one of numpy's only
where numpy has been imported.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

# Imported inside functions: pyspark, since attempts without Spark load this module, too.


@functools.cache
def spare_others() -> None:
    """Let the converters see objects of numpy alone. Idempotent."""
    from pyspark.sql import types

    converters: tuple[Any, ...] = (types.NumpyArrayConverter, types.NumpyScalarConverter)
    for converter in converters:
        converter.can_convert = _of_numpy_only(converter.can_convert)


def _of_numpy_only(original: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    @functools.wraps(original)
    def can_convert(converter: Any, candidate: Any) -> bool:
        numpy = sys.modules.get("numpy")
        # Another thread may be importing it: then it has no objects yet.
        scalar, array = getattr(numpy, "generic", None), getattr(numpy, "ndarray", None)
        if scalar is None or array is None or not isinstance(candidate, (scalar, array)):
            return False
        return original(converter, candidate)

    return can_convert
