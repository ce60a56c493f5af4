"""The suite for inference backends, and fake engines."""
