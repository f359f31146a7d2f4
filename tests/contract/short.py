"""The stateful tests, shorter: each of their steps costs round trips to real servers."""

from __future__ import annotations

import os

from hypothesis import settings

from jrs.testing.contract import Opener, StatefulContract
from jrs.testing.model import check_against_model, histories


class ShortStatefulContract(StatefulContract):
    """Fewer histories unless JRS_SOAK is set."""

    examples = 20

    def test_behaves_like_a_dict(self, handles: Opener, cluster: str) -> None:
        numbers = iter(range(10**9))
        how = histories()
        if not os.environ.get("JRS_SOAK"):
            how = settings(how, max_examples=self.examples)
        check_against_model(lambda: (handles, f"{cluster}-{next(numbers)}"), how)
