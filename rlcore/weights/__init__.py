"""Weights on their way from the trainer to those who generate: versioned snapshots, whole or not at all."""
