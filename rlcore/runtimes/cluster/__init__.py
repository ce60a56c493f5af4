"""The Ray runtime: the same roles as actors, on one machine or on many."""
