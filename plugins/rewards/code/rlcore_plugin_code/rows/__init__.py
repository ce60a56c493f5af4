"""Converts rows of published data sets for programs to rows of rlcore. Pure: no file, no network, and nothing is run."""
