"""The demo: a PySpark pipeline on real input, two real kills, and the same results."""

from __future__ import annotations


def run(backend_url: str | None = None, *, keep: bool = False) -> int:
    """Run the demo on the backend, by default a folder of its own; return its exit status.

    0 if every result equals that of the same jobs run without any kill, 1 if one differs.

    Raises:
        InvalidInput: Spark, Java or the data is not installed; says how to get it.
    """
    # The jobs' own processes import this package, too, and need nothing of the stage set.
    from jrs.demo.story import tell

    return tell(backend_url, keep=keep)
