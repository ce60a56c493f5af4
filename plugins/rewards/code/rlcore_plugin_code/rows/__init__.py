"""Rows of published data sets for programs, as they come, made rows of rlcore. Pure: no file, no network, nothing is run."""
