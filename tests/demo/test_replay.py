"""The streaming demo's input: ordered by time, ended on different days, and all of it."""

from __future__ import annotations

import csv
from datetime import timedelta
from pathlib import Path

import pytest

from jrs.demo import data, replay


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return data.export(tmp_path_factory.mktemp("nyc"))


@pytest.fixture
def replayed(source: Path, tmp_path: Path) -> replay.Replay:
    return replay.export(source, tmp_path)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def in_spark_order(folder: Path) -> list[Path]:
    return sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)


def test_the_airports_end_on_different_days(replayed: replay.Replay) -> None:
    """Each airport's files are one for each day, from the first one to a last one of its own."""
    for airport, last in replay.LAST_DAYS.items():
        days = (last - replay.FIRST).days + 1
        names = [f"{replay.FIRST + timedelta(days=day)}.csv" for day in range(days)]

        assert [path.name for path in in_spark_order(replayed.flights / airport)] == names
    assert len(set(replay.LAST_DAYS.values())) == len(replay.LAST_DAYS) == 3


def test_the_flights_are_in_the_order_of_time(replayed: replay.Replay, source: Path) -> None:
    """As Spark reads the files no flight is earlier than the one before it, and each is there."""
    scheduled = rows(source / "flights.csv")
    for airport, last in replay.LAST_DAYS.items():
        flights = [
            flight
            for path in in_spark_order(replayed.flights / airport)
            for flight in rows(path)
        ]  # fmt: skip
        times = [flight["at"] for flight in flights]
        there = [
            row["carrier"] + row["flight"]
            for row in scheduled
            if row["origin"] == airport
            and str(replay.FIRST) <= row["time_hour"][:10] <= str(last)
        ]  # fmt: skip

        assert times == sorted(times)
        assert sorted(row["carrier"] + row["flight"] for row in flights) == sorted(there)


def test_the_weather_arrives_day_by_day(replayed: replay.Replay) -> None:
    """The feed adds a whole day each time, later than all before it, until the last day."""
    feed = replay.WeatherFeed(replayed)
    added = []
    while not feed.is_over:
        added.append(feed.add())
        newest = in_spark_order(replayed.weather)[-1]

        assert newest.name == f"{added[-1]}.csv"
        assert {row["hour"][:10] for row in rows(newest)} == {str(added[-1])}
        assert not list(replayed.weather.glob(".*"))
    assert added == sorted(added)
    assert (added[0], added[-1]) == (replay.FIRST, max(replay.LAST_DAYS.values()))
