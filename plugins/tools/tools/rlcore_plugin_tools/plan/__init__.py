"""The command ``plan``: how to split devices between generating and training, by simulation."""
