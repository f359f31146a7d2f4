"""The kinds of stores of objects, as parameters of tests."""

from __future__ import annotations

import pytest

from tests import azurite

SCHEMES = [
    "s3",
    "gs",
    pytest.param(
        "abfss",
        marks=pytest.mark.skipif(
            not azurite.COMMAND, reason="needs Azurite: ./dev long clouds installs it, by npm"
        ),
    ),
]
