"""The command ``plan``: how to split devices between generation and training, by simulation."""
