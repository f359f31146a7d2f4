"""The storage of a job that its first leader has taken over."""

from __future__ import annotations

from pathlib import Path

import pytest

from jrs.recovery.files.job_folders import JobStorage
from tests.recovery.support import CLUSTER


@pytest.fixture
def storage(root: Path) -> JobStorage:
    made = JobStorage(root, CLUSTER)
    made.take_over("job", 1)
    return made
