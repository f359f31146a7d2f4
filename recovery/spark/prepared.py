"""A session that was started before this process had an attempt (see `WarmPlan`)."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from jrs.contract.errors import CannotStartHere
from jrs.contract.masks import masked

from ..attempt import scratch
from ..attempt.warm_plan import WarmPlan
from ..processes import marks
from . import configuration, host_configuration, idle_memory, jvm, warm_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Imported inside functions: pyspark, since attempts without Spark load this module, too.

_SECRET = re.compile(r"(?i)secret|password|token|access[.]?key")
"""Keys and values that Spark hides in its own pages (``spark.redaction.regex``)."""
_NAMED = ("spark.eventLog.enabled", "spark.ui.enabled")
"""Where one of these is on, people see the application's name, which is the job's."""

_PARTITIONS = "spark.sql.shuffle.partitions"


@attrs.frozen
class _Prepared:
    conf: dict[str, str]
    found: dict[str, str]


_prepared: _Prepared | None = None


def prepare(plan: WarmPlan) -> None:
    """Start a session by the plan, and have it do what a first batch needs.

    Raises:
        CannotStartHere: the session would be on a cluster, or shows its name, or this host lacks
            something.
        Whatever Spark raises.
    """
    global _prepared
    found = host_configuration.settings_found(os.environ)
    conf = configuration.complete(plan.conf, found, shared=plan.shared)
    if not host_configuration.is_local(host_configuration.master_of(conf, found)):
        raise CannotStartHere("a session on a cluster is not prepared: it would hold cores")
    for key in _NAMED:
        if {**found, **conf}.get(key) == "true":
            raise CannotStartHere(f"with {key} a session is named after its job: not prepared")
    configuration.require_java()
    folders = scratch.make(os.environ[marks.MARK])
    session = configuration.start(conf, found, folders, shared=plan.shared, java=idle_memory.JAVA)
    if folders:
        _warm_up(session, folders[0] / "warm-up")
    _prepared = _Prepared(conf, found)


def is_waiting() -> bool:
    """Return whether a session was prepared that no attempt has taken."""
    return _prepared is not None


def discard() -> None:
    """End the session that was prepared. Idempotent."""
    global _prepared
    if _prepared is not None:
        _prepared = None
        jvm.end()


def take(conf: Mapping[str, str], found: Mapping[str, str]) -> SparkSession | None:
    """Return the session that was prepared, with this configuration; None if there is none.

    One that cannot have this configuration is ended.

    Args:
        conf: as `configuration.complete` returns it.
        found: what Spark finds by itself on this host.
    """
    global _prepared
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    prepared, _prepared = _prepared, None
    if prepared is None or SparkContext._active_spark_context is None:
        return None
    session = SparkSession.builder.getOrCreate()
    why = _change(session, prepared, conf, found)
    if not why:
        return session
    print(masked(f"jrs: the session that was prepared is not used: {why}"), file=sys.stderr)
    session.stop()
    jvm.end()
    return None


def to_record(conf: Mapping[str, str]) -> dict[str, str] | None:
    """Return the configuration that a job gives, for the record of its attempt; None if it may hold
    secrets."""
    for text in (*conf, *conf.values()):
        if _SECRET.search(text) or masked(text) != text:
            return None
    return dict(conf)


def _warm_up(session: SparkSession, folder: Path) -> None:
    partitions = session.conf.get(_PARTITIONS)
    session.conf.set(_PARTITIONS, "2")
    warm_up.work_like_a_job(session, folder)
    session.conf.set(_PARTITIONS, str(partitions))
    shutil.rmtree(folder, ignore_errors=True)
    idle_memory.give_back(session)


def _change(
    session: SparkSession, prepared: _Prepared, conf: Mapping[str, str], found: Mapping[str, str]
) -> str:
    """Give the session this configuration; return why it cannot have it, or an empty text."""
    if prepared.found != found:
        return "the host's configuration of Spark has changed"
    differing = {key for key, _ in prepared.conf.items() ^ conf.items()} - {configuration.NAME}
    for key in sorted(differing):
        if not session.conf.isModifiable(key):
            return f"{key} cannot be changed in a session that runs"
    for key in differing:
        if key in conf:
            session.conf.set(key, conf[key])
        else:
            session.conf.unset(key)
    return ""
