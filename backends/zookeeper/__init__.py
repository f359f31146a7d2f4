"""The ZooKeeper backend: every handle is a client of one ensemble, and a commit is one multi.

Guarantees and limits that follow from ZooKeeper:

- Commits are linearizable, including their conditions and the fence: a majority of the servers
  decides them.
- The server that a handle is connected to answers reads, after it has caught up with the ensemble's
  leader. An ensemble leader that is cut off from the other servers does not notice that for up to
  `syncLimit` ticks (10 seconds by default). During that time its clients may read an old state, but
  cannot commit.
- A client of the ensemble's leader may, for a moment, not see a commit that a follower has
  acknowledged: the leader sends a commit to its followers before it applies it, and answers the
  sync of its own clients without waiting for that. Conditions are not affected: the leader checks
  them against all that was proposed.
- The outcome of a commit is unknown if the connection is lost before the answer, or if the commit
  was sent but not answered within its deadline. A commit that was not sent has not happened. The
  backend does not read back, because only the caller knows how to recognize its commit. A read-back
  through the same handle is final: a commit that is absent then stays absent, because the server
  processes the requests of a connection in order, and a session that lost a commit with its
  connection is ended before the handle reads again.
- If two commits delete keys of one shard and rely on versions in it, one of them may have to read
  again and be sent again. The backend does so, unless `commit_async` made the commit and later
  commits are under way: they must not overtake it, so it fails with `Unavailable`.
- If a user is given, all created znodes belong to that user alone (including `/jrs`, if it was
  created); otherwise to everyone.
- Each directory of keys (`results/`, `dirty/`, …) has 257 znodes, even with few keys.

Needs ZooKeeper 3.6 or newer.
"""
