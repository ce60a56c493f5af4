"""The suite for rewards, and fakes."""
