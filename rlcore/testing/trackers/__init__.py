"""The suite for trackers, and a fake."""
