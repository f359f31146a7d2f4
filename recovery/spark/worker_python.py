"""The Python that Spark's workers run: this one, with compiled modules.

Spark has its workers import pyspark from ``python/lib/pyspark.zip``. That archive holds sources
alone, and Python keeps nothing compiled that it finds in an archive: each kind of worker compiles
pyspark again, for half a second of a core. A streaming batch needs four kinds, one after the other.
The same modules lie compiled where the driver found them.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import site
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jrs.host import environment

from .host_configuration import spark_home

_NAMED = "PYSPARK_PYTHON"
_SCRIPT = """\
#!/bin/sh
# {python}, which finds pyspark where it is compiled, and not in the archives that Spark names.
set -f
kept=
IFS=:
for path in $PYTHONPATH; do
  case $path in {archives}/*.zip) ;; *) kept=$kept${{kept:+:}}$path ;; esac
done
PYTHONPATH=$kept exec {python} "$@"
"""


@contextmanager
def this_one(scratch: Path | None, *, on_host: bool, named: bool) -> Iterator[None]:
    """Have the workers of a session that starts run this Python. Otherwise they are any ``python3``
    on the PATH, without the packages of this one.

    Args:
        scratch: a folder that lasts as long as the session, for a script.
        on_host: whether all workers run on this host. Those of a cluster have the name that its
            hosts know their Python by, and not this one's path; the JVM of the driver starts some
            here, too, and finds this one by that name.
        named: whether Spark's configuration names a Python.
    """
    change: tuple[str, str] | None = None
    if not on_host:
        own, path = os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)
        if os.path.dirname(shutil.which("python3") or "") != own:
            change = ("PATH", os.pathsep.join([own, path]))
    elif not named and _NAMED not in os.environ:
        change = (_NAMED, _script(scratch) or sys.executable)
    if change is None:
        yield
        return
    with environment.changed(*change):
        yield


def _script(folder: Path | None) -> str | None:
    """Write a script that runs this Python without Spark's archives; return its path.

    None if there is no folder, or nothing in it can be executed, or the workers might not find
    without the archives what the driver has found.
    """
    home = _home()
    if folder is None or home is None:
        return None
    script = folder / "python"
    archives = shlex.quote(f"{home}/python/lib")
    try:
        script.write_text(
            _SCRIPT.format(python=shlex.quote(sys.executable), archives=archives), encoding="utf-8"
        )
        script.chmod(0o700)
    except OSError:
        return None
    return str(script) if os.access(script, os.X_OK) else None  # Not on a mount with noexec.


def _home() -> Path | None:
    """Return Spark's home, if pyspark is a part of it and every Python like this one finds it."""
    home = spark_home()
    known = {*site.getsitepackages(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    for name in ("pyspark", "py4j"):
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            return None
        package = Path(spec.origin).parent
        if str(package.parent) not in known:
            return None
        if name == "pyspark" and not package.is_relative_to(home):
            return None
    return home
