"""The suite for conversations, and a fake."""
