"""The command ``eval``: the accuracy of a model on held-out tasks, without training."""
