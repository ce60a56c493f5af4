"""What the processes of test_ranks.py do."""

from __future__ import annotations

import atexit
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from rlcore.contracts.errors import ConfigError
from rlcore.testing.training.star_ranks import StarRanks


def exchange(rank: int, size: int, rendezvous: str) -> list[list[Any]]:
    ranks = StarRanks(rank, size, rendezvous)
    arrays = [np.full((rank, 2), rank, np.float32), np.array([rank], np.int64)]
    answer = [[part.tolist() for part in ranks.gather(array)] for array in arrays]
    ranks.close()
    return answer


def one_dies(rank: int, size: int, rendezvous: str, dead: int) -> None:
    ranks = StarRanks(rank, size, rendezvous, deadline=30.0)
    ranks.gather(np.zeros(1))
    if rank == dead:
        time.sleep(0.3)
        ranks.close()
        return
    ranks.gather(np.zeros(1))


def one_is_silent(rank: int, size: int, rendezvous: str) -> None:
    """Rank 2 stays until the others have given up; only for what it does not send their patience is short."""
    ranks = StarRanks(rank, size, rendezvous)
    ranks.gather(np.zeros(1))
    if rank == 2:
        ranks._receive(0, time.monotonic() + ranks.deadline)
    ranks.deadline = 0.5
    ranks.gather(np.zeros(1))


def raises(rank: int, size: int, rendezvous: str) -> None:
    """Rank 0 would wait for long."""
    if rank == 1:
        raise ZeroDivisionError("planted on rank 1")
    time.sleep(600)


def refuses(rank: int, size: int, rendezvous: str) -> None:
    """Rank 0 fails with a sentence, and rank 1 would wait for it for long."""
    if rank == 0:
        raise ConfigError("planted on rank 0")
    time.sleep(600)


def ends_late(rank: int, size: int, rendezvous: str, sign: str) -> None:
    """Both fail; rank 0 has answered long before its process ends, and rank 1 comes after that."""

    def linger() -> None:
        Path(sign).touch()
        time.sleep(600)

    if rank == 0:
        atexit.register(linger)
    while rank == 1 and not Path(sign).exists():
        time.sleep(0.01)
    raise ConfigError(f"planted on rank {rank}")


def hangs(rank: int, size: int, rendezvous: str, sign: str) -> int:
    if rank == 1:
        print("hanging", os.getpid(), flush=True)
        Path(sign).touch()
        time.sleep(600)
    return os.getpid()
