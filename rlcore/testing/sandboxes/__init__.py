"""The suite for sandboxes, and a fake."""
