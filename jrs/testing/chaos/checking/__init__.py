"""The checks of a chaos run: each one looks for one kind of broken promise in its history."""
