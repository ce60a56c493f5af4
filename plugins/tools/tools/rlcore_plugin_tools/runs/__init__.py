"""The commands ``runs``, ``compare`` and ``rollouts``."""
