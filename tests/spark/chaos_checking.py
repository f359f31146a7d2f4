"""Judges many small histories in plain Python and on Spark: ``chaos_checking.py FOLDER COUNT``.

Prints, as JSON, how many are broken, the differences, and what is wrong in a folder of files.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import attrs
from pyspark.sql import SparkSession

from jrs.testing.chaos.checking import lists_on_spark
from jrs.testing.chaos.checking.anomalies import ANOMALIES
from jrs.testing.chaos.checking.broken_rules import BROKEN_RULES
from jrs.testing.chaos.checking.generate import Row, Shape, generated
from jrs.testing.chaos.checking.generate_lists import generated_lists
from jrs.testing.chaos.checking.list_faults import LIST_FAULTS
from jrs.testing.chaos.checking.lost_answers import LOST_ANSWERS
from jrs.testing.chaos.checking.on_spark import (
    CHECKS,
    violations,
    violations_by_history,
)
from jrs.testing.chaos.checking.planted import Anomaly
from jrs.testing.chaos.checking.tables import write_histories
from jrs.testing.chaos.checking.verdict import Run
from jrs.testing.chaos.checking.watch_faults import WATCH_FAULTS
from jrs.testing.chaos.recorded import COLUMNS, Event, Kind, Verb

folder, count = Path(sys.argv[1]), int(sys.argv[2])
planted = [
    *ANOMALIES.values(),
    *BROKEN_RULES.values(),
    *LIST_FAULTS.values(),
    *LOST_ANSWERS.values(),
    *WATCH_FAULTS.values(),
]
reported = (None, ["doctor/"], ["doctor/another"])


def broken_lists(events: list[Event], random: Random) -> list[Event]:
    """Return a history of lists with some events that show other lists, or another outcome."""
    found = list(events)
    for place in random.choices(range(len(found)), k=3):
        event = found[place]
        if event.type is not Kind.INVOKE and event.f is Verb.COMMIT:
            found[place] = attrs.evolve(event, type=random.choice([Kind.OK, Kind.FAIL, Kind.INFO]))
        elif event.f is Verb.GET_MANY and event.value:
            found[place] = attrs.evolve(
                event, value=[[*row[:2], changed(row[2], random)] for row in event.value]
            )
    return found


def changed(text: str | None, random: Random) -> str | None:
    """Return a list with something in it at another place, twice or not at all."""
    elements = (text or "").split()
    if not elements:
        return text
    moved = elements.pop(random.randrange(len(elements)))
    for _ in range(random.choice((0, 1, 1, 2))):
        elements.insert(random.randint(0, len(elements)), moved)
    return " ".join(elements) or None


def history(number: int) -> list[Event]:
    """Return a history; of three, two are broken."""
    shape = Shape(
        operations=20 + number % 40,
        processes=1 + number % 9,
        keys=1 + number % 13,
        overlap=0.2 + number % 5,
    )
    found = generated(number, shape)
    if number % 4 == 3:
        lists = generated_lists(number, shape, 5 + number % 30)
        if number % 3:
            lists = broken_lists(lists, Random(number))
        found = sorted([*found, *lists], key=lambda event: event.t)
    for turn in range(number % 3):
        found = planted[(number // 3 + 17 * turn) % len(planted)].planted(found, number)
    if number % 2:
        names = reported[number % 3]  # Only one of the broken ones reports too little.
        found = Anomaly("watch", "", lambda amid: amid.watch(names)).planted(found, number)
    return found


expected: dict[str, list[str]] = {}


def histories() -> Iterator[tuple[str, list[Row]]]:
    for number in range(count):
        name, events = f"h{number:05}", history(number)
        run = Run(events)
        found = sorted(str(one) for check in CHECKS for one in check.violations(run))
        if found:
            expected[name] = found
        yield name, [tuple(getattr(event, column) for column in COLUMNS) for event in events]


lists_on_spark.FEW = 100  # So that Spark peels the edges, too.
write_histories(histories(), folder / "table")
os.environ["PYSPARK_PYTHON"] = sys.executable
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "4")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
judged = violations_by_history(spark, folder / "table")
actual = {name: sorted(map(str, found)) for name, found in judged.items()}
# A folder as a run leaves it: files of lines, the last of them cut off.
files = folder / "history"
files.mkdir()
(folder / "run.json").write_text(json.dumps({"unfinished": ["d1"], "broken": []}))
lines = b"".join(event.to_line() for event in generated(1))
lines += Event("q", 1, Kind.INVOKE, Verb.GET, 1, "lost").to_line()
lines += Event("q", 1, Kind.OK, Verb.GET, 2, "lost", "0", 3).to_line()
(files / "p.jsonl").write_bytes(lines + b'["cut')
of_files = list(map(str, violations(spark, folder)))
spark.stop()
differ = [
    (name, expected.get(name), actual.get(name))
    for name in sorted({*expected, *actual})
    if expected.get(name) != actual.get(name)
]
fired = sorted({line.partition(":")[0] for found in expected.values() for line in found})
said = {"broken": len(expected), "differ": differ[:5], "of_files": of_files, "fired": fired}
print(json.dumps(said))
