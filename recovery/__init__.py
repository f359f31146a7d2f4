"""Recovery: who leads, the decision about each job, and how a job is run and cleaned up after."""
