"""The format of ``think_answer_tags``. ``rlcore_plugin_extraction`` finds answers in a text."""

from __future__ import annotations

__all__ = ["tags_in_order"]

_TAGS = ("<think>", "</think>", "<answer>", "</answer>")


def tags_in_order(text: str) -> bool:
    """Return whether each of the four tags occurs exactly once, in order, with only white space after the last."""
    if any(text.count(tag) != 1 for tag in _TAGS):
        return False
    places = [text.index(tag) for tag in _TAGS]
    return places == sorted(places) and not text[places[-1] + len(_TAGS[-1]) :].strip()
