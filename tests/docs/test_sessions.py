"""The pages that are sessions of a terminal run, and print what they show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs import session

DOCS = session.ROOT / "docs"


@pytest.mark.timeout(1000)
@pytest.mark.parametrize(
    "page", ["operations.md", pytest.param("recipes.md", marks=pytest.mark.spark)]
)
def test_the_session(page: str, tmp_path: Path) -> None:
    """Each command prints what the page shows, but for times, ids and the host's name."""
    text = (DOCS / page).read_text()
    printed = session.run(text, tmp_path)

    assert comparable(printed) == comparable(session.commands_of(text))


def comparable(commands: list[session.Command]) -> list[tuple[str, list[str]]]:
    return [(one.text, session.comparable(one.output)) for one in commands]


def test_a_renamed_place_leaves_the_columns() -> None:
    """A page shows other names of places and hosts than the session had, in the same columns."""
    table = (
        "HOST     PLACE                    FROM\n"
        "vm       file:///tmp/work/a       jrs.toml\n"
        "laptop   -                        default\n"
        "root@vm: /tmp/work/a is there\n"
    )
    assert session.renamed(table, {"/tmp/work": "/srv/etl", "vm": "etl1"}) == (
        "HOST     PLACE                    FROM\n"
        "etl1     file:///srv/etl/a        jrs.toml\n"
        "laptop   -                        default\n"
        "root@etl1: /srv/etl/a is there\n"
    )
