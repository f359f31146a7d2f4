"""Fencing: commits of leaders and attempts that may have been replaced."""

from __future__ import annotations

import attrs
import pytest

from jrs.contract.backend import Backend
from jrs.contract.errors import Conflict, Fenced
from jrs.contract.leadership import Leadership
from jrs.contract.operations import EPOCH_KEY, Absent, Check, Create, Delete, Fence, Update
from jrs.testing.contract.fixtures import BOUND, contents, lead, present


def attempt_of(backend: Backend, leadership: Leadership) -> tuple[Fence, Check]:
    """Register an attempt; return its fence, and the attempt's own condition in it."""
    backend.commit(Create("fence/j", b"1.1.a"))
    let_in = Check("fence/j", present(backend, "fence/j").version)
    return attrs.evolve(leadership.fence, attempt=let_in), let_in


class FencingContract:
    """A fence is a condition of a commit, like any other."""

    def test_a_fence_that_holds(self, backend: Backend, other: Backend) -> None:
        """A commit with the newest epoch's fence is accepted from every client."""
        with lead(backend) as leadership:
            backend.commit(Create("k", b"1"), fence=leadership.fence)
            other.commit(Create("l", b"1"), fence=leadership.fence)
            assert backend.is_current(leadership.fence)
            assert other.is_current(leadership.fence)

        assert contents(other) == {"k": b"1", "l": b"1"}

    def test_an_old_fence_is_refused(self, backend: Backend, other: Backend) -> None:
        """A write with an older epoch's fence is `Fenced` on every client and changes nothing."""
        with lead(backend) as leadership:
            old = leadership.fence
        with lead(other) as leadership:
            assert leadership.epoch > old.epoch
            for client in (backend, other):
                with pytest.raises(Fenced):
                    client.commit(Create("k", b""), fence=old)
                with pytest.raises(Fenced):
                    client.commit_async(Create("k", b""), fence=old).result(BOUND)
                assert not client.is_current(old)

        assert contents(backend) == {}

    def test_the_fence_comes_before_the_conditions(self, backend: Backend) -> None:
        """A write with an old fence is `Fenced` even if its operations conflict as well."""
        backend.commit(Create("k", b""))
        with lead(backend) as leadership:
            old = leadership.fence
        with lead(backend), pytest.raises(Fenced):
            backend.commit(Create("k", b""), fence=old)

    def test_a_losing_commit_under_a_good_fence(self, backend: Backend) -> None:
        """A conflict with a current fence is a `Conflict` that names the caller's operation."""
        backend.commit(Create("k", b""))
        with lead(backend) as leadership:
            with pytest.raises(Conflict) as caught:
                backend.commit(Absent("l"), Create("k", b""), fence=leadership.fence)

        assert Create("k", b"") == caught.value.op

    def test_resigning_does_not_lower_the_fence(self, backend: Backend) -> None:
        """A resigned leader's fence stays valid until the next epoch begins."""
        with lead(backend) as leadership:
            pass

        assert present(backend, EPOCH_KEY).version == leadership.fence.version

    def test_the_fence_of_an_attempt(self, backend: Backend, other: Backend) -> None:
        """Once the record that registered an attempt has changed or is deleted, the attempt's
        writes are refused on every client and change nothing, even in the same epoch."""
        with lead(backend) as leadership:
            fence, let_in = attempt_of(backend, leadership)
            backend.commit(Create("k", b""), fence=fence)
            other.commit_async(Create("l", b""), fence=fence).result(BOUND)
            assert other.is_current(fence)
            with pytest.raises(Conflict):
                backend.commit(Create("k", b""), fence=fence)
            for op in (Update("fence/j", b"none", let_in.version), Delete("fence/j")):
                backend.commit(op, fence=leadership.fence)
                for client in (backend, other):
                    with pytest.raises(Fenced):
                        client.commit(Create("m", b""), fence=fence)
                    with pytest.raises(Fenced):
                        client.commit_async(Create("k", b""), fence=fence).result(BOUND)
                    assert not client.is_current(fence)
                    assert client.is_current(leadership.fence)

        assert contents(backend) == {"k": b"", "l": b""}

    def test_an_attempt_closes_its_own_fence(self, backend: Backend) -> None:
        """A commit may change the record that registered its own attempt: afterwards that attempt
        is refused."""
        with lead(backend) as leadership:
            fence, let_in = attempt_of(backend, leadership)
            last = Update("fence/j", b"none", let_in.version)
            backend.commit(Create("k", b""), last, fence=fence)
            with pytest.raises(Fenced):
                backend.commit(Create("l", b""), last, fence=fence)

        assert contents(backend) == {"fence/j": b"none", "k": b""}

    def test_the_fence_of_an_attempt_has_room(self, backend: Backend) -> None:
        """The largest commit is accepted with an attempt's fence, too."""
        with lead(backend) as leadership:
            fence, _ = attempt_of(backend, leadership)
            most = backend.capabilities.max_ops
            backend.commit(*(Create(f"k/{number}", b"") for number in range(most)), fence=fence)
            backend.commit_async(Create("l", b""), fence=fence).result(BOUND)

        assert len(contents(backend, "k/")) == most

    def test_a_fence_that_never_was(self, backend: Backend) -> None:
        """A fence is refused if no epoch has begun."""
        with pytest.raises(Fenced):
            backend.commit(Create("k", b""), fence=Fence(1, 1))
        assert contents(backend) == {}
