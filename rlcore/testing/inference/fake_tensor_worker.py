"""A worker of the tensor parallel fake: it holds its columns of each weight, and imports little.

``python -m rlcore.testing.inference.fake_tensor_worker CHANNEL MEMORY RANK SIZE MODEL``; the first two are descriptors.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection

import numpy as np

from rlcore.contracts.errors import RlcoreError, WeightsError
from rlcore.testing.policy import LAST, PAIR, FakePolicy
from rlcore.testing.transfers.fake_group_rank import FakeGroupRank

__all__ = ["share"]


def share(vocabulary: int, rank: int, size: int) -> slice:
    """Return the columns of one worker: equal parts, the first ones larger by one if they do not divide."""
    cuts = [vocabulary * place // size for place in range(size + 1)]
    return slice(cuts[rank], cuts[rank + 1])


def _serve(channel: Connection, memory: int, rank: int, size: int, model: str) -> None:
    """Work until the engine hangs up."""
    whole = FakePolicy.load(model)
    columns = share(whole.vocabulary, rank, size)
    own = {name: np.array(array[:, columns]) for name, array in whole.arrays().items()}
    group: FakeGroupRank | None = None
    while True:
        try:
            order, *arguments = channel.recv()
        except (EOFError, OSError):
            return
        if order == "logits":
            last, pair = whole._contexts(*arguments)
            channel.send(own[LAST][last].astype(np.float64) + own[PAIR][pair])
            continue
        wrong = None
        try:
            if order == "take":
                _take(own, columns, memory, *arguments)
            elif order == "join":
                if group is not None:
                    group.close()
                group = FakeGroupRank(arguments[0], rank)
            elif order == "pull":
                if group is None:
                    raise WeightsError("no group of the weights has been joined: call connect first")
                for name, array in group.take(*arguments).items():
                    own[name][...] = array[:, columns]
        except RlcoreError as error:
            wrong = error
            if group is not None:
                group.close()  # no other member waits for this one
        channel.send(wrong)


def _take(own: dict[str, np.ndarray], columns: slice, memory: int, size: int, places: Sequence[tuple[str, int, tuple[int, ...]]]) -> None:
    with mmap.mmap(memory, size, access=mmap.ACCESS_READ) as bucket:
        for name, at, shape in places:
            array = np.frombuffer(bucket, np.float32, count=int(np.prod(shape)), offset=at).reshape(shape)
            own[name][...] = array[:, columns]
            del array  # the mapping cannot be closed while a view of it lives


if __name__ == "__main__":
    channel, memory, rank, size = map(int, sys.argv[1:5])
    _serve(Connection(channel), memory, rank, size, sys.argv[5])
