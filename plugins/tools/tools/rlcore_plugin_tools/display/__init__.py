"""The display of `rlcore train` on a terminal: a panel that is redrawn in place."""
