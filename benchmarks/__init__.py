"""Figures, measured: each module is one `make bench…` target and ends with one line of JSON."""
