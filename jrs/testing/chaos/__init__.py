"""The fault kit: programs that break things, record what happened, and judge it.

`damage`: damages files of a store, and compares every answer with the truth. `powercut`: records a
run, and opens every disk state that a power cut could leave. `interleave`: lets a second handle act
between any two system calls of the first one. `soak`: puts masters and their jobs through kills,
pauses and a full disk.

Each is a program (``python -m jrs.testing.chaos.damage --help``) and prints one line of figures.
"""
