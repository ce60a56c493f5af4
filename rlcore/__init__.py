"""rlcore: reinforcement learning of language models on verifiable rewards, as plugins around a small core."""

__version__ = "0.1.0"
