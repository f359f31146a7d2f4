"""Properties of queries that are read from Spark's private fields."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from jrs.contract.errors import InvalidInput
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.spark import queries

FIELDS = ["extraOptions", "source", "outputMode", "trigger"]


class Value:
    """What a field holds: no option, or the mode append."""

    def contains(self, name: str) -> bool:
        return False

    def __str__(self) -> str:
        return "Append"


@attrs.frozen
class Field:
    name: str

    def getName(self) -> str:
        return self.name

    def setAccessible(self, flag: bool) -> None:
        pass

    def get(self, of: object) -> Value:
        return Value()


@attrs.frozen
class Writer:
    """The JVM's side of a writer. Every supported Spark has all fields, so this one is made up."""

    fields: list[str]

    def getClass(self) -> Writer:
        return self

    def getDeclaredFields(self) -> list[Field]:
        return [Field(name) for name in self.fields]

    def getSuperclass(self) -> None:
        return None

    def getSimpleName(self) -> str:
        return "DataStreamWriter"


def check(fields: list[str]) -> None:
    writer: Any = SimpleNamespace(_jwrite=Writer(fields))
    queries.check_writer(
        writer, "s", JobStorage(Path("/"), "c"), Path("/s"), bounded=False, begins=lambda: True
    )


@pytest.mark.parametrize("missing", FIELDS)
def test_a_spark_without_a_field_is_refused_by_name(missing: str) -> None:
    """A check that cannot be made must not pass: Spark may rename what it keeps private."""
    check(FIELDS)
    with pytest.raises(InvalidInput, match=f"has no field '{missing}'"):
        check([name for name in FIELDS if name != missing])


class Options:
    """The options of a writer, as Spark keeps them."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def contains(self, name: str) -> bool:
        return name == "path" and name in self.names

    def get(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(get=lambda: "/s")

    def keySet(self) -> Options:
        return self

    def mkString(self, between: str) -> str:
        return between.join(self.names)


@pytest.mark.parametrize(
    ("names", "output", "ignored"),
    [
        ((), "/s", ""),
        (("queryname", "path"), "/s", ""),
        (("queryName", "compression"), "/s", "compression"),
        (("path",), "/other", "path"),
    ],
)
def test_what_the_sink_ignores(
    names: tuple[str, ...], output: str, ignored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark keeps the name of a query among its options; and a function that writes with any sink
    may name the folder of its stage."""
    found: dict[str, Any] = {
        "extraOptions": Options(*names),
        "source": "jrs",
        "outputMode": "Append",
        "trigger": "",
        "partitioningColumns": SimpleNamespace(isDefined=lambda: False),
    }
    monkeypatch.setattr(queries, "_peek", lambda of, name: found[name])
    writer: Any = SimpleNamespace(_jwrite=None, _df=SimpleNamespace(columns=["key"]))

    def check_it() -> None:
        queries.check_writer(
            writer, "s", JobStorage(Path("/"), "c"), Path(output), bounded=False,
            begins=lambda: True,
        )  # fmt: skip

    if ignored:
        with pytest.raises(InvalidInput, match=f"ignores {ignored}: "):
            check_it()
    else:
        check_it()
