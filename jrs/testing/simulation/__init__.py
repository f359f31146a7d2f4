"""The simulation: the shipped code of masters, attempts and clients under a scheduler.

Nothing of the code under test is changed. Its threads are greenlets here, its clock moves when all
of them wait, and its backend is a map in memory that may lose answers. So a run is a function of
its seed, and a failure is one number.
"""
