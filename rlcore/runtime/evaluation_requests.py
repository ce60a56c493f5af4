"""Pending evaluation requests of a run that generates while it trains. Knows no producers and no threads."""

from __future__ import annotations

__all__ = ["EvaluationRequests"]


class EvaluationRequests:
    """Requests for an evaluation with the weights of a version or newer, in the order of the versions.

    One evaluation answers all requests up to its version, later ones included: a second one would use the same weights and write the same
    rows twice.

    >>> requests = EvaluationRequests()
    >>> requests.ask(9)
    >>> requests.answered(12)
    >>> requests.ask(12)
    >>> bool(requests)
    False
    """

    def __init__(self) -> None:
        self._wanted: list[int] = []
        self._made = -1
        """Newest version that was evaluated."""

    def __bool__(self) -> bool:
        """Whether a request is pending."""
        return bool(self._wanted)

    @property
    def first(self) -> int:
        """Oldest version still requested."""
        return self._wanted[0]

    def ask(self, version: int) -> None:
        """Request an evaluation by this version or a newer one."""
        if version > self._made:
            self._wanted.append(version)

    def answered(self, version: int) -> None:
        """Record that this version was evaluated."""
        self._made = max(self._made, version)
        self._wanted = [wanted for wanted in self._wanted if wanted > version]
