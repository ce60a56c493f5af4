"""Ranks of the fake trainer, in processes: everybody gets everything, and whoever is missing is named."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from rlcore.contracts.errors import ConfigError, RunError
from rlcore.testing.training import rank_processes
from rlcore.testing.training.rank_processes import free_rendezvous, run_ranks
from rlcore.testing.training.star_ranks import StarRanks

pytestmark = pytest.mark.full


def test_every_rank_gets_all_arrays_by_rank() -> None:
    expected = [[[], [[1.0, 1.0]], [[2.0, 2.0], [2.0, 2.0]]], [[0], [1], [2]]]
    assert run_ranks("rank_bodies:exchange", 3) == [expected] * 3


@pytest.mark.parametrize("dead", [0, 2])
def test_a_rank_that_is_gone_is_named_on_all_others(dead: int) -> None:
    answers = run_ranks("rank_bodies:one_dies", 3, dead)
    assert answers.pop(dead) is None
    for answer in answers:
        assert isinstance(answer, RunError)
        assert f"lost rank {dead}" in str(answer)


def test_a_rank_that_is_silent_is_named_on_all_others() -> None:
    answers = run_ranks("rank_bodies:one_is_silent", 3)
    assert [str(answer) for answer in answers[:2]] == ["trainer rank 0 waited 0.5 s for rank 2"] * 2


def test_a_process_that_fails_is_a_run_error_with_what_it_said() -> None:
    with pytest.raises(
        RunError, match=r"(?s)rank 1 of 2 ended with exit code 1 and gave no answer to rank_bodies:raises.*planted on rank 1"
    ):
        run_ranks("rank_bodies:raises", 2)


def test_the_error_of_one_rank_is_told_though_the_other_waits_for_it() -> None:
    first, second = run_ranks("rank_bodies:refuses", 2)
    assert isinstance(first, ConfigError)
    assert str(first) == "planted on rank 0"
    assert "rank 1 of 2 was ended, for it still waited after rank 0 had failed" in str(second)


def test_a_rank_that_has_answered_and_not_ended_yet_keeps_its_answer(tmp_path: Path) -> None:
    answers = run_ranks("rank_bodies:ends_late", 2, str(tmp_path / "answered"))
    assert [str(answer) for answer in answers] == ["planted on rank 0", "planted on rank 1"]


def test_a_process_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is over by the clock of ``run_ranks`` as soon as the one hangs and the other has answered."""
    sign, real, ended = tmp_path / "hangs", time.monotonic, list[int]()
    late = SimpleNamespace(monotonic=lambda: real() + (3600.0 if ended else 0.0), sleep=time.sleep)
    poll = subprocess.Popen.poll

    def noted(process: subprocess.Popen[bytes]) -> int | None:
        code = poll(process)
        if code == 0 and sign.exists():
            ended.append(process.pid)
        return code

    monkeypatch.setattr(rank_processes, "time", late)
    monkeypatch.setattr(subprocess.Popen, "poll", noted)
    with pytest.raises(RunError, match=r"rank 1 of 2 gave no answer .* within 120 s") as caught:
        run_ranks("rank_bodies:hangs", 2, str(sign))
    said = re.search(r"hanging (\d+)", str(caught.value))
    assert said is not None
    with pytest.raises(ProcessLookupError):
        os.kill(int(said[1]), 0)


@pytest.mark.fast
def test_ranks_that_never_come_are_named() -> None:
    with pytest.raises(RunError, match=r"rank 0 waited 0\.1 s at 127\.0\.0\.1:\d+ for rank 1, 2"):
        StarRanks(0, 3, free_rendezvous(), deadline=0.1)
    with pytest.raises(RunError, match=r"rank 2 waited 0\.1 s at .* for rank 0"):
        StarRanks(2, 3, free_rendezvous(), deadline=0.1)
    with pytest.raises(ConfigError, match="rendezvous 'here' of 3 trainer ranks is not an address"):
        StarRanks(1, 3, "here")


@pytest.mark.fast
def test_one_rank_waits_for_nobody() -> None:
    values = np.ones(2)
    assert StarRanks(0, 1, "").gather(values)[0] is values
