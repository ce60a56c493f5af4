"""Samplers: curricula by success or by a column, replay, and the difficulty of data without end."""
