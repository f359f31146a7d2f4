"""The ZooKeeper backend: every handle is a client of one ensemble, and a commit is one multi.

What ZooKeeper promises and what it does not, as far as it shows here:

- Commits are linearizable, their conditions and the fence included: they are judged by a majority.
- Reads are made by the server a handle is connected to, after it has caught up with the leader of
  the ensemble. A leader that was cut off from the others is not aware of that for up to `syncLimit`
  ticks (with ZooKeeper's defaults, 10 seconds), and for so long a reader on its side may see what
  was true before. It can commit nothing.
- A commit whose connection is lost before the answer is of unknown outcome, as is one that was sent
  and not answered within its deadline. One that was not sent is known not to have happened. Nothing
  is read back here: what proves that a commit happened is known to whoever made it. Read back
  through the same handle, it is settled: what is not there then will not be there later, since the
  server takes the requests of a session in order, and none of a connection it has moved on from.
- Of two commits that delete keys of one shard, and rely on versions in it, one may have to look
  again and be sent again. It is, unless it was made by `commit_async` and later ones are under way:
  these must not overtake it, so it is `Unavailable`.
- Where a user is given, everything that is made belongs to that user alone (`/jrs`, too, if it was
  not there); else to everyone.
- Each directory of keys (`results/`, `dirty/`, …) is 257 znodes, however few keys it has.

Needs ZooKeeper 3.6 or newer.
"""

from .backend import ZooKeeperBackend, open_zookeeper

__all__ = ["ZooKeeperBackend", "open_zookeeper"]
