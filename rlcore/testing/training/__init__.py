"""The suite for training backends, and fake trainers."""
