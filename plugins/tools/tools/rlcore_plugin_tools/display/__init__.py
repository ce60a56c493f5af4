"""What `rlcore train` shows on a terminal: a panel that is redrawn in place."""
