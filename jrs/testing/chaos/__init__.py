"""The fault kit: what breaks things, what records what happened, and what judges it.

`damage`: files of a store are damaged, and every answer is compared with the truth.
`powercut`: a run is recorded, and every disk state that a power cut could leave is opened.
`interleave`: a second handle acts between any two system calls of a first one.
`soak`: masters and their jobs live through kills, pauses and a full disk.

Each is a program (``python -m jrs.testing.chaos.damage --help``) and prints one line of figures.
"""
