"""The one error of these commands that is for the person who typed them. Standard library only."""

__all__ = ["Refused"]


class Refused(Exception):
    """One sentence: what is wrong, and what to type; the command ends with exit code 2. Any other error keeps its traceback."""
