"""Validators: what is no job id, no JSON, no result."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jrs.contract.errors import InvalidInput, TooLarge
from jrs.records.checks import MAX_PAYLOAD, check_job_id, check_json, check_stage_name
from jrs.records.model import JobResult, JobSpec, JobStatus, StageSummary
from jrs.records.policies import RestartPolicy


@pytest.mark.parametrize("name", ["a", "0", "A.b_c-d", "nightly-2026-01-01", "x" * 128, "a..b"])
def test_what_is_a_job_id(name: str) -> None:
    """1 to 128 of A-Z a-z 0-9 . _ -, the first one a letter or digit, is a job id."""
    assert name == check_job_id(name) == check_stage_name(name)


@pytest.mark.parametrize(
    "name",
    ["", "a/b", "/", "a b", " a", "a ", "a\n", "\n", "x" * 129, "x" * 200, "x" * 10**6, ".", "..",
     ".a", "-a", "_a", "ä", "a\0", "a:b", "a%2Fb", "１", None, 1, b"a", ["a"]],
    ids=lambda name: repr(name)[:20],
)  # fmt: skip
def test_what_is_no_job_id(name: Any) -> None:
    """Anything else is refused in one short line, by the check and by every model."""
    for make in (check_job_id, lambda name: JobResult(name, JobStatus.FINISHED),
                 lambda name: JobSpec(name, "m:f")):  # fmt: skip
        with pytest.raises(InvalidInput, match="not a job id") as caught:
            make(name)
        assert len(str(caught.value)) < 300
        assert "\n" not in str(caught.value)
    with pytest.raises(InvalidInput, match="not a stage name"):
        check_stage_name(name)


@pytest.mark.parametrize("status", [s for s in JobStatus if not s.is_globally_terminal])
def test_only_a_terminal_status_is_a_result(status: JobStatus) -> None:
    """A result that is not globally terminal cannot be made (H6)."""
    with pytest.raises(InvalidInput, match="FINISHED, FAILED or CANCELED"):
        JobResult("j", status)


class Odd:
    pass


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, -math.inf, {1}, frozenset(), {1: 2}, {None: 1}, {True: 1}, {b"k": 1},
     {(1,): 1}, b"bytes", bytearray(), 1j, object(), Odd(), Odd, print, range(3), Text("t"),
     {Text("t"): 1}, JobStatus.FAILED],
    ids=lambda value: repr(value).partition(" at 0x")[0],
)  # fmt: skip
@pytest.mark.parametrize(
    "wrap",
    [lambda value: value, lambda value: [value], lambda value: {"k": [(value,)]}],
    ids=["bare", "list", "deep"],
)
def test_what_is_not_json(value: Any, wrap: Any) -> None:
    """NaN, infinity, sets, keys that are no strings and foreign types are refused at any depth."""
    with pytest.raises(InvalidInput, match="not JSON: the thing: "):
        check_json(wrap(value), "the thing")


def test_nested_too_deeply() -> None:
    """Nesting beyond what JSON's own reader can take back is refused, not a RecursionError."""
    value: Any = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(InvalidInput, match="nested too deeply"):
        check_json(value, "it")


def test_a_loop() -> None:
    """A list that contains itself is refused."""
    value: list[Any] = []
    value.append(value)
    with pytest.raises(InvalidInput):
        check_json(value, "it")


def test_the_largest_payload() -> None:
    """A payload of exactly 256 KiB passes; one more byte is TooLarge and says what to do."""
    text = "x" * (MAX_PAYLOAD - 2)
    assert text == check_json(text, "it")
    with pytest.raises(TooLarge, match="give its location instead"):
        check_json(text + "x", "it")
    with pytest.raises(TooLarge):
        check_json("é" * (MAX_PAYLOAD // 6 + 1), "it")


def test_tuples_become_lists() -> None:
    """What is checked is what will be read back."""
    assert check_json(({"a": (1, (2,))},), "it") == [{"a": [1, [2]]}]


@given(st.text() | st.lists(st.text()) | st.floats(allow_nan=False, allow_infinity=False))
def test_json_is_left_as_it_is(value: Any) -> None:
    """What is JSON already is returned equal."""
    assert value == check_json(value, "it")


@pytest.mark.parametrize("arguments", [[1], None, "x", {"a": {1}}, {1: 1}])
def test_arguments_are_a_json_object(arguments: Any) -> None:
    """The arguments of a job are a JSON object with names as keys."""
    with pytest.raises(InvalidInput):
        JobSpec("j", "m:f", arguments)


@pytest.mark.parametrize(
    "policy",
    [{"attempts": 0}, {"attempts": True}, {"attempts": 1.0}, {"delay": -1.0}, {"delay": math.nan},
     {"delay": math.inf}, {"max_delay": "1"}],
    ids=repr,
)  # fmt: skip
def test_no_restart_policy(policy: dict[str, Any]) -> None:
    """A policy out of range is refused when it is made."""
    with pytest.raises(InvalidInput):
        RestartPolicy(**policy)


def test_skipped_stages() -> None:
    """A stage that an earlier attempt finished counts as skipped by the last one."""
    stages = (StageSummary("a", 1, 1, 0.0), StageSummary("b", 2, 2, 0.0))
    assert JobResult("j", JobStatus.FINISHED, attempt=2, stages=stages).stages_skipped == 1
