"""Runs that are killed at every event, and go on."""
