"""Recovery: who leads, what is decided about each job, how it is run and cleaned up after."""
