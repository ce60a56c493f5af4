"""The command ``show``: explains a plugin, and where each setting of a run comes from."""
