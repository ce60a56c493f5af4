"""The arguments of functions for Python."""
