"""The shared parts of several backends: group commit, ordered map, leadership lease."""
