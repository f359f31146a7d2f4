"""The histories that every backend is held against know what a lost answer may mean."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, settings

from jrs.backends.memory import MemoryBackend
from jrs.contract.backend import Backend
from jrs.contract.errors import OutcomeUnknown
from jrs.contract.operations import Create
from jrs.store.opening import open_backend
from jrs.testing.model import check_against_model, histories

FEW = settings(histories(), max_examples=30, derandomize=True, phases=(Phase.generate,))


@pytest.fixture
def lose_answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., None]], None]:
    """Let the backend lose every third answer; what it does instead of the commit is given."""

    def lose(instead: Callable[..., None]) -> None:
        commit, calls = MemoryBackend._commit, Counter[str]()

        def losing(backend: MemoryBackend, *args: Any) -> None:
            calls[backend.url] += 1  # A history has a URL of its own, and so repeats exactly.
            if calls[backend.url] % 3:
                return commit(backend, *args)
            instead(lambda *args: commit(backend, *args), *args)
            raise OutcomeUnknown("the answer was lost")

        monkeypatch.setattr(MemoryBackend, "_commit", losing)

    return lose


def fresh() -> tuple[Callable[[str], Backend], str]:
    url = f"memory://{uuid.uuid4().hex}"
    return lambda cluster: open_backend(url, cluster=cluster), "c"


def commits(commit: Callable[..., None], *args: Any) -> None:
    commit(*args)


def commits_nothing(commit: Callable[..., None], *args: Any) -> None:
    return


def commits_something_else(commit: Callable[..., None], *args: Any) -> None:
    commit((Create("foreign", b""),), None, args[-1])


@pytest.mark.parametrize("instead", [commits, commits_nothing])
def test_a_lost_answer_is_no_fault(lose_answers: Any, instead: Any) -> None:
    """A backend that says honestly that it does not know is a good one."""
    lose_answers(instead)
    check_against_model(fresh, FEW)


def test_a_lost_answer_excuses_no_other_write(lose_answers: Any) -> None:
    """What is there afterwards has to be one of the two states that the commit allows."""
    lose_answers(commits_something_else)
    with pytest.raises(AssertionError):
        check_against_model(fresh, FEW)
