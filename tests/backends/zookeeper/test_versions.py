"""Versions: a key that was deleted and created again is another one, whatever ZooKeeper counts."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jrs.backends.zookeeper.backend import ZooKeeperBackend
from jrs.backends.zookeeper.layout import Layout
from jrs.backends.zookeeper.protocol import codec
from jrs.backends.zookeeper.protocol.multi_read import Reading, read
from jrs.contract.clock import Deadline
from jrs.contract.errors import Conflict, Fenced, Unavailable
from jrs.contract.operations import EPOCH_KEY, Check, Create, Delete, Fence, Op, Update
from jrs.testing.contract import contents, lead, present
from jrs.testing.servers.zookeeper import ZooKeeperServer

BOUND = 30.0
Open = Callable[..., ZooKeeperBackend]


def neighbour(key: str, number: int = 0) -> str:
    """Return another key of the same shard."""
    layout = Layout("/jrs", "any")
    directory = key.rpartition("/")[0]
    candidates = (f"{directory}/n{at}" for at in range(10**6))
    same = (name for name in candidates if layout.shard(name) == layout.shard(key))
    return next(name for at, name in enumerate(same) if at == number)


def requests_of(backend: ZooKeeperBackend) -> Callable[[], int]:
    """Count the requests that the handle submits from now on."""
    connection = backend._connection
    submit = connection.submit
    sent: list[Any] = []

    def counted(*requests: Any) -> None:
        sent.extend(requests)
        submit(*requests)

    connection.submit = counted
    return lambda: len(sent)


def versioned(key: str, version: int) -> list[Op]:
    return [Update(key, b"late", version), Delete(key, version), Check(key, version)]


def test_the_version_of_a_znode_comes_again(handle: Open) -> None:
    """Without the shard's count, an update of the old record would overwrite the new one."""
    backend = handle()
    backend.commit(Create("k/a", b"old"))
    old = present(backend, "k/a")
    known = backend._planner.cache.of("k/a")
    backend.commit(Delete("k/a"))
    backend.commit(Create("k/a", b"new"))
    path = backend._planner.layout.record("k/a")
    assert known is not None
    naive = codec.set_data(path, b"overwritten", known.writes)
    request = backend._connection.write([naive], backend._deadline())

    assert request.reply is not None
    assert codec.failure(*request.reply) is None
    assert present(backend, "k/a").value == b"overwritten"
    assert present(backend, "k/a").version > old.version


@pytest.mark.parametrize("which", [0, 1, 2], ids=["update", "delete", "check"])
@pytest.mark.parametrize("pipelined", [False, True], ids=["waiting", "pipelined"])
@pytest.mark.parametrize("who", ["own", "foreign"])
def test_a_key_created_again_by_another_client(
    handle: Open, who: str, pipelined: bool, which: int
) -> None:
    """What was read before the key was deleted and created again is refused, by every client."""
    reader, other = handle(), handle()
    reader.commit(Create("k/a", b"old"))
    old = present(reader if who == "own" else handle(), "k/a")
    other.commit(Delete("k/a"))
    other.commit(Create("k/a", b"new"))
    op = versioned("k/a", old.version)[which]
    with pytest.raises(Conflict) as caught:
        if pipelined:
            reader.commit_async(op).result(BOUND)
        else:
            reader.commit(op)

    assert caught.value.op == op
    assert present(other, "k/a").value == b"new"


def test_many_incarnations(handle: Open) -> None:
    """No version of any earlier incarnation is good for a later one, however often both changed."""
    reader, other = handle(), handle()
    versions = []
    for life in range(4):
        other.commit(Create("k/a", b"%d" % life))
        for _ in range(3):
            versions.append(present(reader, "k/a").version)
            other.commit(Update("k/a", b"%d" % life, present(other, "k/a").version))
        if life < 3:
            other.commit(Delete("k/a"))
    stored = contents(other)

    assert sorted(set(versions)) == versions
    for client in (reader, other, handle()):
        for version in versions:
            for op in versioned("k/a", version):
                with pytest.raises(Conflict):
                    client.commit(op)
    assert stored == contents(other)


def test_another_key_of_the_shard_may_go(handle: Open) -> None:
    """The deletion of a neighbour makes no conflict for a caller that waits; nor does its own."""
    reader, other = handle(), handle()
    near, nearer = neighbour("k/a"), neighbour("k/a", 1)
    reader.commit(Create("k/a", b"1"), Create(near, b""), Create(nearer, b""))
    record = present(reader, "k/a")
    other.commit(Delete(near))
    reader.commit(Update("k/a", b"2", record.version))
    record = present(reader, "k/a")
    other.commit(Delete(nearer))
    reader.commit_async(Update("k/a", b"3", record.version)).result(BOUND)

    assert contents(other) == {"k/a": b"3"}


def test_our_own_deletions_cost_no_second_look(handle: Open) -> None:
    """A client that deletes key after key at the version it read sends each commit once."""
    backend = handle()
    keys = ["k/a", *(neighbour("k/a", number) for number in range(20))]
    backend.commit(*(Create(key, b"") for key in keys))
    records = list(backend.scan("k/"))
    count = requests_of(backend)
    for record in records:
        backend.commit(Delete(record.key, record.version))

    assert len(keys) == count()
    assert contents(backend) == {}


def test_a_version_from_elsewhere_is_looked_up_once(handle: Open) -> None:
    """A version that came over the wire is as good as one that this handle has read."""
    reader = handle()
    reader.commit(Create("k/a", b"1"))
    other = handle()  # It knows the directories, which take a request to create.
    version = present(reader, "k/a").version
    count = requests_of(other)
    other.commit(Check("k/a", version))
    assert count() == 3  # Two for the look, one for the commit.
    other.commit(Update("k/a", b"2", version))
    assert count() == 4

    assert contents(reader) == {"k/a": b"2"}


def test_pipelined_commits_behind_a_look_keep_their_order(handle: Open) -> None:
    """What is made after a commit that has to be looked into is applied after it."""
    reader, other = handle(), handle()
    reader.commit(Create("k/a", b"1"))
    version = present(reader, "k/a").version
    futures = [other.commit_async(Update("k/a", b"2", version))]
    for number in range(50):
        futures.append(other.commit_async(Create("k/b", b"")))
        futures.append(other.commit_async(Delete("k/b")))
        if number == 25:
            futures.append(other.commit_async(Check("k/a", 10**15)))
    outcomes = [future.exception(BOUND) for future in futures]

    assert [error for error in outcomes if error is not None] == [outcomes[53]]
    assert isinstance(outcomes[53], Conflict)
    assert contents(reader) == {"k/a": b"2"}


def test_a_pipelined_commit_is_not_overtaken(
    handle: Open, zookeeper_server: ZooKeeperServer
) -> None:
    """One that would have to be sent again behind later ones is `Unavailable`: not applied."""
    reader, other = handle(), handle()
    near = neighbour("k/a")
    reader.commit(Create("k/a", b"1"), Create(near, b""))
    record = present(reader, "k/a")
    other.commit(Delete(near))
    zookeeper_server[0].pause()  # No answer comes before both are under way.
    first = reader.commit_async(Update("k/a", b"2", record.version))
    second = reader.commit_async(Create("k/later", b""))
    zookeeper_server.heal()

    assert second.exception(BOUND) is None
    assert isinstance(first.exception(BOUND), Unavailable)
    assert contents(other) == {"k/a": b"1", "k/later": b""}
    reader.commit(Update("k/a", b"2", present(reader, "k/a").version))


def test_the_first_loser_is_named_after_a_second_look(handle: Open) -> None:
    """Looking again for one operation does not hide that an earlier one had lost, too."""
    reader, other = handle(), handle()
    reader.commit(Create("k/a", b"1"), Create("k/b", b"1"))
    record = present(reader, "k/b")
    other.commit(Delete("k/b"))
    other.commit(Create("k/b", b"2"))
    ops = (Create("k/a", b""), Update("k/b", b"3", record.version))

    for _ in range(2):
        with pytest.raises(Conflict) as caught:
            reader.commit(*ops)
        assert caught.value.op == ops[0]


@pytest.mark.parametrize("before", ["older", "absent"])
def test_a_member_that_is_behind_decides_nothing(
    handle: Open, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    """A handle that reads what was there before an acknowledged write commits on that write."""
    writer, other = handle(), handle()
    keys = ["k/a", EPOCH_KEY]
    if before == "older":
        writer.commit(Create("k/a", b"1"))
        lead(writer).resign()
    looks = [other._planner.look([key]) for key in keys]
    behind = {
        codec.multi(look): read(other._connection, look, Deadline.after(BOUND)) for look in looks
    }
    answers = Reading.answers

    def answers_behind(self: Reading, **how: Any) -> list[codec.Read]:
        if self._connection is other._connection and self._body in behind:
            return behind.pop(self._body)
        return answers(self, **how)

    monkeypatch.setattr(Reading, "answers", answers_behind)
    writer.overwrite("k/a", b"2")
    with lead(writer) as leadership:
        other.commit(Update("k/a", b"3", present(writer, "k/a").version))
        other.commit(Create("k/b", b""), fence=leadership.fence)

    assert behind == {}
    assert contents(writer) == {"k/a": b"3", "k/b": b""}


def test_a_fence_after_its_record_was_deleted(handle: Open) -> None:
    """A fence is no good once the epoch's record is another one, at whatever version."""
    backend, other = handle(), handle()
    with lead(backend) as leadership:
        fence = leadership.fence
    other.commit(Delete(EPOCH_KEY))
    for client in (backend, other):
        with pytest.raises(Fenced):
            client.commit(Create("k", b""), fence=fence)
    with lead(other) as leadership:
        for client in (backend, other):
            with pytest.raises(Fenced):
                client.commit(Create("k", b""), fence=Fence(leadership.epoch, fence.version))
        backend.commit(Create("k", b""), fence=leadership.fence)


def test_contended_incarnations(handle: Open) -> None:
    """Clients that create, update and delete one key at random agree with a counter of it.

    Each successful commit also updates `k/log` at the version read with the key, so that what was
    committed can be replayed: any update applied to another incarnation would not fit.
    """
    clients = [handle(), handle()]
    clients[0].commit(Create("k/log", b""))

    def play(number: int) -> int:
        chance, client, done = random.Random(number), clients[number % 2], 0
        for _ in range(60):
            log, record = present(client, "k/log"), client.get("k/a")
            if record is None:
                op: Op = Create("k/a", b"%d" % number)
                word = b"c"
            elif chance.random() < 0.5:
                op, word = Delete("k/a", record.version), b"d"
            else:
                op, word = Update("k/a", record.value + b".", record.version), b"u"
            try:
                client.commit(op, Update("k/log", log.value + word, log.version))
                done += 1
            except Conflict:
                pass
        return done

    with ThreadPoolExecutor(4) as pool:
        done = sum(pool.map(play, range(4)))
    log = present(clients[1], "k/log").value.decode()

    assert len(log) == done
    alive, updates = False, 0
    for word in log:
        assert alive == (word != "c")
        updates = 0 if word == "c" else updates + (word == "u")
        alive = word != "d"
    record = clients[0].get("k/a")
    assert (record is not None) == alive
    if record is not None:
        assert record.value.count(b".") == updates
