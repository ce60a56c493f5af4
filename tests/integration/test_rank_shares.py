"""What each trainer rank of a run gets of a batch, played in one process: the tokens of its own share, outlines of the rest; and what it
makes of them."""

from __future__ import annotations

import gzip
import itertools
import json
import pickle
import re
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rlcore_plugin_workers import batch_reader
from rlcore_plugin_workers.batch_reader import BatchReader
from rlcore_plugin_workers.trainer_ranks import TrainerRanks
from rlcore_plugin_workers.trainer_worker import TrainerWorker

from rlcore.api import Group
from rlcore.testing import FakeTraining, RunOutcome, RunTester
from tests.ray_in_one_process import ray_in_one_process


class Brought:
    """What came to the ranks, by rank. ``whole``: leases of which it got the tokens, ``ahead`` of them before their batch; ``seen``: the
    prompts and rollouts of these; ``computed``: those that its backend was given; ``size``: bytes."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.size: dict[int, int] = defaultdict(int)
        self.whole: dict[int, list[int]] = defaultdict(list)
        self.seen: dict[int, set[tuple[str, int]]] = defaultdict(set)
        self.computed: dict[int, set[tuple[str, int]]] = defaultdict(set)
        self.ahead = 0
        self.outlined: dict[int, int] = defaultdict(int)
        self._lock = threading.Lock()
        for name in ("share_out", "preload", "train"):
            patch.setattr(TrainerWorker, name, self._told(getattr(TrainerWorker, name)))
        self.probes: dict[int, list[list[int]]] = defaultdict(list)
        probe = FakeTraining.probe

        def probed(backend: FakeTraining, token_ids: np.ndarray) -> np.ndarray:
            self.probes[backend.ranks.rank].append(token_ids.tolist())
            return probe(backend, token_ids)

        patch.setattr(FakeTraining, "probe", probed)
        for name in ("logprobs", "update"):
            patch.setattr(FakeTraining, name, self._asked(getattr(FakeTraining, name)))

    def _told(self, method: Any) -> Any:
        def told(host: TrainerWorker, *arguments: Any) -> Any:
            for argument in arguments:
                if isinstance(argument, Mapping):
                    self._take(host._rank, argument)
                    self.ahead += len(argument) if method.__name__ == "preload" else 0
            return method(host, *arguments)

        return told

    def _take(self, rank: int, stored: Mapping[int, Group]) -> None:
        with self._lock:
            self.size[rank] += len(pickle.dumps(stored, protocol=5))
            for lease_id, group in stored.items():
                segments = [segment for rollout in group.rollouts for segment in rollout.segments]
                if all((segment.context_ids < 0).all() and (segment.token_ids < 0).all() for segment in segments):
                    self.outlined[rank] += 1
                else:
                    self.whole[rank].append(lease_id)
                    self.seen[rank] |= {(rollout.prompt_id, rollout.index) for rollout in group.rollouts}

    def _asked(self, method: Any) -> Any:
        def asked(backend: FakeTraining, batch: Any, *arguments: Any) -> Any:
            with self._lock:
                self.computed[backend.ranks.rank] |= {(rollout.prompt_id, rollout.index) for rollout in batch.rollouts}
                assert all((segment.token_ids >= 0).all() for rollout in batch.rollouts for segment in rollout.segments)
            return method(backend, batch, *arguments)

        return asked


def run(
    folder: Path, patch: pytest.MonkeyPatch, *flags: str, least: int = 0, slow: float = 0.0, **sections: Any
) -> tuple[Brought, RunOutcome]:
    folder.mkdir()
    tester = RunTester(folder, in_process=True).with_fakes()
    with patch.context() as here, ray_in_one_process(here, 2):
        here.setattr(batch_reader, "_WORTH_SHARING", least)
        update = FakeTraining.update
        here.setattr(FakeTraining, "update", lambda self, *given: (time.sleep(slow), update(self, *given))[1])  # groups are ready before it
        brought = Brought(here)
        config = tester.fake_run(training={"train_batch_size": 4, **sections.pop("training", {})}, **sections)
        return brought, tester.run("train", config, "--json", "--runtime", "ray", "-i", "2", *flags).assert_ok()


def made(folder: Path, outcome: RunOutcome) -> tuple[dict[str, bytes], list[dict[str, Any]], list[Any]]:
    """Weights and moments, to the bit, and what the run says of its updates."""
    root = folder / outcome.json["run"]
    files = {name: np.load(root / "checkpoints" / "step-3" / name) for name in ("model/fake_policy.npz", "trainer/fake_trainer.npz")}
    bits = {f"{file} {name}": arrays[name].tobytes() for file, arrays in files.items() for name in arrays}
    rows = [json.loads(line) for line in (root / "metrics.jsonl").read_text().splitlines()]
    timed = re.compile(r"second|time|latency|bubble|busy|memory|waste|share/")
    figures = [{name: value for name, value in row.items() if not timed.search(name)} for row in rows]
    rollouts = [gzip.decompress(file.read_bytes()) for file in sorted(root.glob("rollouts/*.gz"))]
    return bits, figures, rollouts


SETTINGS: Sequence[dict[str, Any]] = [
    {},
    {"algorithm": {"updates_per_batch": 2, "epochs_per_batch": 2}},
    {"algorithm": {"kl_coeff": 0.1, "updates_per_batch": 2}},
    {"algorithm": {"kl_coeff": 0.1, "kl_in": "reward", "estimator": "reinforce++"}},
    {"algorithm": {"loss": "gspo"}},
]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("ranks", ["2", "3"])
def test_ranks_with_shares_make_the_weights_of_ranks_with_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], ranks: str
) -> None:
    brought, shared = run(tmp_path / "shared", monkeypatch, "-t", ranks, "--max-steps", "3", **settings)
    with monkeypatch.context() as patch:
        patch.setattr(TrainerRanks, "shared", False)
        everything, whole = run(tmp_path / "whole", monkeypatch, "-t", ranks, "--max-steps", "3", **settings)
    assert made(tmp_path / "shared", shared) == made(tmp_path / "whole", whole)
    assert [brought.probes[rank] for rank in range(int(ranks))] == [everything.probes[0]] * int(ranks)
    assert set(everything.outlined) == set()
    for rank in range(int(ranks)):
        assert brought.seen[rank] == brought.computed[rank] == everything.computed[rank]
        assert len(brought.whole[rank]) == len(set(brought.whole[rank]))  # each once
    if "updates_per_batch" not in settings.get("algorithm", {}):  # else a rank computes on other groups in each step
        assert sum(map(len, brought.whole.values())) == 4 * 3


def test_a_rank_gets_no_token_of_the_others_also_ahead_of_its_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deliveries come at any time here: what is shared out ahead may not be what the batch is in the end."""
    settings: dict[str, Any] = {"schedule": {"max_staleness": 2}, "run": {"num_episodes": 20, "max_steps": 12}}
    brought, outcome = run(tmp_path / "run", monkeypatch, "-t", "2", slow=0.1, **settings)
    assert outcome.json["ledger"]["trained"] == 4 * 12
    assert all(brought.computed[rank] <= brought.seen[rank] for rank in (0, 1))
    assert brought.ahead > 0
    assert len(brought.whole[0]) + len(brought.whole[1]) < 1.5 * 4 * 12


def test_a_batch_of_few_tokens_is_not_worth_sharing_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"schedule": {"max_staleness": 2}, "run": {"num_episodes": 20, "max_steps": 8}}
    brought, _ = run(tmp_path / "run", monkeypatch, "-t", "2", least=8192, slow=0.6, **settings)
    assert not brought.outlined
    assert brought.ahead > 0
    assert brought.computed[0] | brought.computed[1] <= brought.seen[0] == brought.seen[1]


def test_batches_may_be_shared_out_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the answers grow over the bound, and fall below it."""
    turns = itertools.cycle([True, True, False, True, False, False])
    shares = BatchReader._shares
    monkeypatch.setattr(BatchReader, "_shares", lambda self, order: shares(self, order) and next(turns))
    settings: dict[str, Any] = {"schedule": {"max_staleness": 2}, "run": {"num_episodes": 20, "max_steps": 12}}
    brought, outcome = run(tmp_path / "run", monkeypatch, "-t", "2", **settings)
    assert outcome.json["ledger"]["trained"] == 4 * 12
    assert brought.outlined[1] > 0
