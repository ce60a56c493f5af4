"""Remarks on the settings of a run."""
