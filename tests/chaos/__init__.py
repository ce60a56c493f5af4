"""Runs whose processes and machines are killed, stopped and cut off while they train."""
