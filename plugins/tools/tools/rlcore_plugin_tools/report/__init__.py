"""The commands ``report`` and ``watch``: a run as one page."""
