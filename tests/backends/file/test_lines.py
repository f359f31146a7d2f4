"""Lines of a log: no state, no I/O."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jrs.backends.file.format import lines
from jrs.contract.operations import Absent, Check, Create, Delete, Op, Update

AWKWARD = [b"\\", b"\t", b"\n", b"\0", b"~", b"~~", b"t", b"n", b"0", b"w", b"\xff", b"\r"]
awkward = st.lists(st.sampled_from(AWKWARD)).map(b"".join)
values = st.binary(max_size=30) | awkward
keys = st.from_regex(r"[A-Za-z0-9._-]{1,8}(/[A-Za-z0-9._-]{1,8}){0,2}", fullmatch=True)
versions = st.integers(0, 2**60)
ops: st.SearchStrategy[Op] = (
    st.builds(Create, keys, values)
    | st.builds(Update, keys, values, versions)
    | st.builds(Delete, keys, st.none() | versions)
    | st.builds(Check, keys, versions)
    | st.builds(Absent, keys)
)
commits = st.lists(ops, max_size=4).map(tuple)
fences = st.none() | st.tuples(keys, versions)


@given(values)
def test_escaping(value: bytes) -> None:
    """An escaped value is the value again, and holds no byte that a line uses for itself."""
    escaped = lines.escape(value)
    assert value == lines.unescape(escaped)
    assert not set(escaped) & set(b"\t\n\0~")


@given(commits, fences)
def test_a_line_is_one_line(commit: tuple[Op, ...], fence: tuple[str, int] | None) -> None:
    """A commit is one line with a checksum that fits and none of the marks of a crash in it."""
    line = lines.sealed(lines.commit(commit, fence)[0])
    assert line.count(b"\n") == 1
    assert b"~" not in line
    assert b"\0" not in line
    assert lines.checked(line[:-1]) == line[9:-1]


@given(commits, fences)
def test_the_keys_of_a_line(commit: tuple[Op, ...], fence: tuple[str, int] | None) -> None:
    """All keys that evaluate a commit can be told from its line."""
    expected = ([] if fence is None else [fence[0]]) + [op.key for op in commit]
    assert expected == lines.commit(commit, fence)[1]


@given(commits, st.data())
def test_a_cut_line(commit: tuple[Op, ...], data: st.DataObject) -> None:
    """A line cut off anywhere and followed by the next batch is invalid, and told from damage."""
    line = lines.sealed(lines.commit(commit, None)[0])
    cut = line[: data.draw(st.integers(1, len(line) - 1))] + lines.MARK
    assert lines.checked(cut) is None
    assert lines.is_remnant(cut)


@given(commits, st.data())
def test_a_flipped_bit(commit: tuple[Op, ...], data: st.DataObject) -> None:
    """A line with one flipped bit, its newline's included, is invalid and no remnant of a crash."""
    whole = bytearray(lines.sealed(lines.commit(commit, None)[0]) + lines.BATCH)
    at = data.draw(st.integers(0, len(whole) - len(lines.BATCH) - 1))
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    for line in bytes(whole).split(b"\n")[:-1]:
        if line != lines.MARK:
            assert lines.checked(line) is None
    assert any(
        line != lines.MARK and not lines.is_remnant(line) for line in bytes(whole).split(b"\n")[:-1]
    )


@pytest.mark.parametrize("zeros", [2, 100, 4096])
def test_zeros(zeros: int) -> None:
    """A run of zeros is what a power cut leaves where data never reached the disk."""
    assert lines.is_remnant(b"00000000\tC\t" + b"\0" * zeros + b"rest")
    assert not lines.is_remnant(b"00000000\tC\t\0rest")


def test_a_newline_that_never_reached_the_disk() -> None:
    """A whole line whose newline is a zero was torn at the edge of a page; with any other byte
    there it was damaged."""
    line = lines.sealed(lines.commit((Create("k", b"v"),), None)[0])[:-1]

    assert lines.is_remnant(line + b"\0" + lines.MARK)
    assert lines.is_remnant(line + lines.MARK)
    assert not lines.is_remnant(line + b"\x0b" + lines.MARK)
    # D3: only a batch's first byte was lost, with the sector that it was the last one of.
    assert lines.is_remnant(b"\0~")
    # A second crash, in the middle of the mark behind it.
    assert lines.is_remnant(line + b"~" + lines.MARK)
    assert not lines.is_remnant(line + b"\x0b~" + lines.MARK)
