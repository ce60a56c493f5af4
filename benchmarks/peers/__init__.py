"""`make bench-peers`: rlcore and TRL on the same work, side by side."""
