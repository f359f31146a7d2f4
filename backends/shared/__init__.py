"""What several backends are built from: group commit, an ordered map, the leadership lease."""
