"""The commands ``report`` and ``watch``: one or several runs as one page."""
