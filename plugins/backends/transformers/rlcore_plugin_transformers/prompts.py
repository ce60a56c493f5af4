"""Prompts before they run: the queue of requests, grouped by prompt in the order of arrival, and prompts combined into one tensor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from rlcore.api import Request

__all__ = ["PendingPrompts", "left_padded"]


class PendingPrompts:
    """A queue of groups. A group holds the requests with one context, which is computed once for all of them."""

    def __init__(self) -> None:
        self._groups: dict[bytes, list[Request]] = {}

    def __bool__(self) -> bool:
        return bool(self._groups)

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def add(self, requests: Iterable[Request]) -> None:
        """Queue requests with those of the same prompt, or as a new group at the end."""
        for request in requests:
            self._groups.setdefault(request.token_ids.tobytes(), []).append(request)

    def take(self, prompts: int, rows: int | None) -> list[list[Request]]:
        """Take up to ``prompts`` whole groups with at most ``rows`` requests in total (None: any number)."""
        taken: list[list[Request]] = []
        for key in list(self._groups)[:prompts]:
            size = len(self._groups[key])
            if rows is not None and size > rows:
                break
            taken.append(self._groups.pop(key))
            rows = None if rows is None else rows - size
        return taken

    def take_part(self, rows: int) -> list[list[Request]]:
        """Take the first ``rows`` requests of the first group, which is larger."""
        key, group = next(iter(self._groups.items()))
        self._groups[key] = group[rows:]
        return [group[:rows]]

    def drop(self, request_ids: set[str]) -> list[Request]:
        """Remove and return the requests with these ids."""
        dropped: list[Request] = []
        for key, group in list(self._groups.items()):
            dropped += [request for request in group if request.request_id in request_ids]
            kept: Sequence[Request] = [request for request in group if request.request_id not in request_ids]
            if kept:
                self._groups[key] = list(kept)
            else:
                del self._groups[key]
        return dropped


def left_padded(
    contexts: Sequence[np.ndarray], lengths: np.ndarray, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Contexts int32[C] of lengths int64[g] -> int64[g, width] tokens and positions, bool[g, 1, width, width]: the places that each place
    sees.

    Padding sees itself, so that no softmax is empty.
    """
    width = int(lengths.max())
    place = np.arange(width) - (width - lengths)[:, None]
    tokens = np.zeros((len(contexts), width), np.int64)
    tokens[place >= 0] = np.concatenate(contexts)
    inputs = torch.from_numpy(np.stack([tokens, np.maximum(place, 0)])).to(device)
    real = torch.from_numpy(place >= 0).to(device)
    square = torch.ones(width, width, dtype=torch.bool, device=device)
    visible = (square.tril() & real[:, None, :]) | torch.eye(width, dtype=torch.bool, device=device)
    return inputs[0], inputs[1], visible[:, None]
