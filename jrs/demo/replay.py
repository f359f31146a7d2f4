"""The streaming demo's input: half of February 2013 in New York, as small files ordered by time.

Each airport has a folder with one file of flights for each day: these inputs are bounded and end on
different days. The weather is unbounded: `WeatherFeed` adds a day to its folder now and then, until
the demo ends it.

Spark reads the files of a folder in the order of their times of modification, so those are set.
"""

from __future__ import annotations

import csv
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import attrs

FIRST = date(2013, 2, 1)
LAST_DAYS = {"EWR": date(2013, 2, 15), "JFK": date(2013, 2, 12), "LGA": date(2013, 2, 9)}
"""The last replayed day of each airport's flights; the newest is also that of the weather."""
FLIGHT_COLUMNS = ("at", "origin", "carrier", "flight", "dest", "dep_delay", "arr_delay")
WEATHER_COLUMNS = ("hour", "station", "temp", "wind_speed", "precip", "visib")

_LAST = max(LAST_DAYS.values())
_EPOCH = datetime(2020, 1, 1, tzinfo=UTC).timestamp()
"""The modification time of the files of the first day; any time in the past would do."""

Row = tuple[str, ...]


@attrs.frozen
class Replay:
    """The input of a replay."""

    flights: Path
    """A folder with one complete folder for each airport."""
    weather: Path
    """The folder of the weather; empty at first."""
    days: tuple[tuple[date, tuple[Row, ...]], ...]
    """The weather of each day that will be added."""


def export(source: Path, folder: Path) -> Replay:
    """Write the flights below `folder`, and return the input.

    Args:
        source: where `jrs.demo.data` has put its CSV files.
    """
    flights, weather = folder / "flights", folder / "weather"
    weather.mkdir(parents=True)
    every = list(_flights(source))
    for airport, last in LAST_DAYS.items():
        (flights / airport).mkdir(parents=True)
        for day, rows in _by_day([row for row in every if row[1] == airport], FIRST, last):
            _write(flights / airport, day, FLIGHT_COLUMNS, rows)
    days = tuple(_by_day(_weather(source), FIRST, _LAST))
    return Replay(flights, weather, days)


class WeatherFeed:
    """Adds the weather to its folder, day by day: a source without an end."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self.fed = 0
        """The number of days that were added."""

    @property
    def is_over(self) -> bool:
        """Whether the demo has no more days to add."""
        return self.fed == len(self._replay.days)

    def add(self) -> date:
        """Add the next day atomically, and return it."""
        day, rows = self._replay.days[self.fed]
        _write(self._replay.weather, day, WEATHER_COLUMNS, rows)
        self.fed += 1
        return day


def _flights(source: Path) -> Iterator[Row]:
    with (source / "flights.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if not str(FIRST) <= row["time_hour"][:10] <= str(_LAST):
                continue  # Skip most of the year, which takes time to read.
            hour = datetime.fromisoformat(row["time_hour"])
            at = hour + timedelta(minutes=int(row["minute"]))
            yield (f"{at:%Y-%m-%dT%H:%M:%SZ}", *(row[name] for name in FLIGHT_COLUMNS[1:]))


def _weather(source: Path) -> Iterator[Row]:
    with (source / "weather.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            yield (
                row["time_hour"],
                row["origin"],
                *(row[name] for name in WEATHER_COLUMNS[2:]),
            )


def _by_day(rows: Iterable[Row], first: date, last: date) -> Iterator[tuple[date, tuple[Row, ...]]]:
    """Yield the rows of each day, by the first column, from the earliest to the latest."""
    days: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        days[row[0][:10]].append(row)
    for number in range((last - first).days + 1):
        day = first + timedelta(days=number)
        yield day, tuple(sorted(days[day.isoformat()]))


def _write(folder: Path, day: date, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Write the file of a day; it appears atomically."""
    half = folder / f".{day}"
    with half.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(columns)
        table.writerows(rows)
    at = _EPOCH + (day - FIRST).days
    os.utime(half, (at, at))
    half.rename(folder / f"{day}.csv")
