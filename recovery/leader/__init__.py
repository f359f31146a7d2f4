"""The leader: it gathers facts, decides about each job, and acts."""
