"""The memory that this process and its children may use, and what happens when it runs out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def usable() -> int:
    """Return the bytes of memory of this host, or the limit of a cgroup if that is less."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for limit in _texts("memory.max", "memory.limit_in_bytes"):
        with suppress(ValueError):  # "max" is not a number: there is no limit.
            found.append(int(limit))
    return min(found)


def ends_all_at_once() -> bool:
    """Return whether the kernel kills this process and all next to it in its cgroup when one of
    them needs more memory than there is."""
    return "1" in _texts("memory.oom.group")


def _texts(*names: str) -> Iterator[str]:
    """Yield what the files of such names say, of the cgroups of this process and of all above."""
    for folder in _cgroups():
        for name in names:
            with suppress(OSError):
                yield (folder / name).read_text().strip()


def _cgroups() -> Iterator[Path]:
    # What a container sees as the root may be its own cgroup.
    yield _ROOT
    yield _ROOT / "memory"
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            of_kind = _ROOT / "memory" if "memory" in kinds.split(",") else _ROOT
            own = of_kind / path.lstrip("/")
            yield from (one for one in (own, *own.parents) if one.is_relative_to(of_kind))
