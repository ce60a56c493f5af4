"""Transfer of weights from the trainer to the producers, in versioned snapshots that arrive completely or not at all."""
