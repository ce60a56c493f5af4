"""The command ``show``: explains a plugin, or where each setting of a run comes from."""
