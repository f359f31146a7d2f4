"""What tells the query of a checkpoint from another one, by the plans that Spark prints."""

from __future__ import annotations

import pytest

from jrs.recovery.spark.plan_hashes import PlanHashes, hashes_of

SOURCE = "\n+- ~StreamingRelationV2 org.apache.RateStreamProvider@{:x}, rate, [value#{}L]"
DRAWN = [
    "~Project [rand({}) AS rand({})#2]",
    "~Project [randn({}) AS x#20, random({}) AS rand()#23]",
    "~Filter (rand({}) < cast(0.5 as double))",
    "~Project [uuid(Some({})) AS uuid()#32]",
    "~Project [shuffle(array(cast(1 as bigint), value#49L), Some({})) AS shuffle(array(1))#50]",
    "~Project [uniform(1, 10, {}, true) AS uniform(1, 10)#63]",
    "~Project [uniform(1, 10000000000, {}, true, Some(Etc/UTC)) AS uniform(1, 10)#63]",
    "~Project [uniform(cast(1 as double), 1.5, {}, false) AS uniform(1, 1.5, {})#63]",
    "~Project [randstr(5, {}, true) AS randstr(5)#71, randstr(5, {}, false) AS randstr(5, {})#72]",
    "~Sample 0.0, 0.5, false, {}, Bernoulli",
    "~Sample 0.0, 0.5, false, {}",
]
"""How Spark 4.1 to 4.3 print a seed that they, or PySpark, have drawn."""
GIVEN = ["~Project [rand({})]", "~Project [uuid(Some({}))]", "~Sample 0.0, 0.5, false, {}"]


def hashes(plan: str, seed: int, address: int = 1) -> PlanHashes:
    text = plan.replace("{}", str(seed)) + SOURCE.format(address, address)
    return hashes_of(text, text)


@pytest.mark.parametrize("plan", DRAWN)
def test_seeds_that_are_drawn_do_not_count(plan: str) -> None:
    one, other = hashes(plan, 3481953120780343724), hashes(plan, -66148828513496000, 2)

    assert one.query == other.query
    assert one.printed != other.printed
    assert one.has_drawn
    assert other.has_drawn


@pytest.mark.parametrize("plan", GIVEN)
def test_seeds_that_are_given_count(plan: str) -> None:
    one, other = hashes(plan, 5), hashes(plan, 6, 2)

    assert one.query != other.query
    assert not one.has_drawn
    assert one == hashes(plan, 5, 2)


@pytest.mark.parametrize("changed", [10**15, 10**15 + 1])
def test_other_long_numbers_count(changed: int) -> None:
    """Microseconds have as many digits as a seed."""
    plan = "~Filter ((at#1 > {}) AND (coalesce(at#1, {}) > f(1, {}, true)))"

    assert hashes(plan, changed).query != hashes(plan, 10**15 + 2).query


def test_what_spark_leaves_out_counts() -> None:
    short = "~Project [a#1, ... 1 more fields]"
    one, other = hashes_of(short, "~Project [a#1, b#2]"), hashes_of(short, "~Project [a#1, c#2]")

    assert one.printed == other.printed
    assert one.query != other.query
