"""Words of the pipe between producer and engine."""

OTHER_STOP = "other stop"
"""Why a request ended that the model's folder says to end, and its stop tokens do not."""
