"""The memory that this process and its children may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def usable() -> int:
    """Return the bytes of memory of this host, or the limit of a cgroup if that is less."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for limit in _limits():
        with suppress(OSError, ValueError):  # "max" is not a number: there is no limit.
            found.append(int(limit.read_text()))
    return min(found)


def _limits() -> Iterator[Path]:
    """Yield the files that may limit this process: those of its cgroups, and of all above them."""
    # What a container sees as the root may be its own cgroup.
    yield _ROOT / "memory.max"
    yield _ROOT / "memory" / "memory.limit_in_bytes"
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            of_kind, name = (
                (_ROOT / "memory", "memory.limit_in_bytes")
                if "memory" in kinds.split(",")
                else (_ROOT, "memory.max")
            )
            own = of_kind / path.lstrip("/")
            for folder in (own, *own.parents):
                if not folder.is_relative_to(of_kind):
                    break
                yield folder / name
