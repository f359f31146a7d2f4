"""Hashes of the plan of a query, by which an attempt knows the query of a checkpoint."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

import attrs

from . import queries

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_VOLATILE = re.compile(
    r"#\d+L?"  # the ids of expressions
    r"|@[0-9a-f]+"  # the addresses of objects
    r"|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)
# Seeds that are drawn each time a query is built, as its code gives none. They have 64 bits, so
# practically none has fewer digits.
_SEEDS = re.compile(
    r"(\b(?:rand|randn|random)\()-?\d{10,}"
    r"|(\bSome\()-?\d{10,}(?=\))"  # of uuid and shuffle
    r"|(\b(?:uniform|randstr)\((?:[^()\n]|\([^()\n]*\))*?, )-?\d{10,}(?=\)|, (?:true|false)\b)"
    r"|(\bSample [^,\n]+, [^,\n]+, \w+, )-?\d{10,}"
)
_WHOLE = {
    "spark.sql.debug.maxToStringFields": "2147483647",
    "spark.sql.maxPlanStringLength": "2147483632",
}
"""The settings with which Spark leaves out nothing of a plan that it prints."""


@attrs.frozen
class PlanHashes:
    """Hashes of the plan of a query."""

    query: str
    """The same for the same code on the same input."""
    printed: str
    """The one that every version of jrs knows. It is of what Spark prints by the session's
    settings: without some of the columns of a wide table, and with the seeds that were drawn."""
    has_drawn: bool
    """Whether the query has such a seed, so that `printed` differs at each start."""


def plan_hashes(writer: DataStreamWriter, folder: str) -> PlanHashes:
    """Return hashes of the query's plan.

    Args:
        folder: the job's own, which does not count: a job may be restored elsewhere.
    """
    queries.make_active(writer)  # Spark prints by the settings of the thread's session.
    printed = queries.printed(writer)
    with queries.other_settings(writer, _WHOLE):
        whole = queries.printed(writer)
    return hashes_of(printed.replace(folder, ""), whole.replace(folder, ""))


def hashes_of(printed: str, whole: str) -> PlanHashes:
    """Return the hashes of a plan as Spark prints it by the session's settings, and in whole."""
    query = _SEEDS.sub(lambda found: "".join(filter(None, found.groups())), whole)
    return PlanHashes(_hash(query), _hash(printed), query != whole)


def _hash(plan: str) -> str:
    return hashlib.sha256(_VOLATILE.sub("", plan).encode()).hexdigest()[:32]
