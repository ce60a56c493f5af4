"""What the trainer ranks of test_torch_layouts.py do, each in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from exact_backend import ExactBackend
from rlcore_plugin_torch import model_files
from rlcore_plugin_torch.backend import TorchBackend
from rlcore_plugin_torch.layout import Layout
from rlcore_plugin_torch.weights import named_weights
from starting import error_of, started
from torch.distributed.tensor import DTensor

from rlcore.api import (
    FinishReason,
    LoraSettings,
    LossBatch,
    ModelRole,
    Need,
    Normalisers,
    OptimizerSettings,
    Rollout,
    Segment,
    TrainBatch,
    TrainingContext,
)
from rlcore.testing.training.plain_objective import PlainObjective
from rlcore.testing.training.rank_processes import next_rendezvous
from rlcore.testing.training.star_ranks import StarRanks
from rlcore.testing.weights import handed_out

VOCABULARY = 97
STEPS = 5
LORA = LoraSettings(rank=4, alpha=16.0)
UNPLANNED = "phi with norms of q and k"
"""A model whose plan in transformers leaves out parameters that act on the heads of one rank."""


@dataclass(kw_only=True)
class Ran:
    """What one rank ends with."""

    place: tuple[int, int] = (0, 1)
    logprobs: np.ndarray = field(default_factory=lambda: np.zeros(0))
    reference: np.ndarray = field(default_factory=lambda: np.zeros(0))
    metrics: list[Mapping[str, float]] = field(default_factory=list)
    before: dict[str, np.ndarray] = field(default_factory=dict)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    gradients: dict[str, np.ndarray] = field(default_factory=dict)
    probed: np.ndarray = field(default_factory=lambda: np.zeros(0))
    held: int = 0
    """Elements of the policy in this rank's memory."""


def many_prompts(seed: int) -> TrainBatch:
    """Four prompts with two completions each, of lengths all different."""
    random = np.random.default_rng(seed)
    rollouts, lengths = [], []
    for prompt in range(4):
        context = random.integers(2, VOCABULARY, 3 + prompt)
        for index in range(2):
            tokens = random.integers(2, VOCABULARY, 2 + int(random.integers(0, 7)))
            lengths.append(len(tokens))
            none = np.zeros(len(tokens))
            segment = Segment(context_ids=context, token_ids=tokens, logprobs=none, versions=none, policy_mask=none + 1)
            rollouts.append(Rollout(prompt_id=f"p{prompt}", index=index, segments=(segment,), text="", finish=FinishReason.STOP))
    total = sum(lengths)
    return TrainBatch(
        rollouts=tuple(rollouts),
        group=np.repeat(np.arange(4), 2),
        in_loss=np.ones(8, np.bool_),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        advantages=random.normal(size=total).astype(np.float32),
        rollout_logprobs=np.zeros(total, np.float32),
        weights=np.full(total, 1.0 / total, np.float32),
        normalisers=Normalisers(tokens=total, rollouts=8, length=max(lengths)),
    )


def share_of(batch: TrainBatch, place: int, size: int, step: int) -> TrainBatch:
    """Groups in turn; in the third step the last place has nothing, the first has all."""
    if size > 1 and step == 2:
        rows = np.arange(8) if place == 0 else np.zeros(0, np.int64)
    else:
        rows = np.flatnonzero(batch.group % size == place)
    return batch.take(rows)


def context_of(model: str, layout: Layout, rank: int, rendezvous: str, dtype: str, lora: LoraSettings | None = None) -> TrainingContext:
    return TrainingContext(
        model=model,
        optimizer=OptimizerSettings(learning_rate=1e-3, total_steps=20, max_grad_norm=0.05, weight_decay=0.1),
        rollouts_per_forward=2,
        tokens_per_forward=200,
        prompts_per_slice=10,
        needs=frozenset({Need.REFERENCE}),
        dtype=dtype,
        device="cpu",
        rank=rank,
        world_size=layout.size,
        rendezvous=rendezvous if layout.size > 1 else "",
        tensor_parallel=layout.tensor,
        zero_stage=layout.zero,
        lora=lora,
    )


def trained(rank: int, layout: Layout, rendezvous: str, model: str, dtype: str, lora: LoraSettings | None, steps: int = STEPS) -> Ran:
    """Log probabilities of a share, some steps, what came out."""
    backend, ran = started(context_of(model, layout, rank, rendezvous, dtype, lora), ExactBackend), Ran()
    with closing(backend):
        place, size = ran.place = backend.data_parallel
        first = share_of(many_prompts(0), place, size, 2)
        ran.logprobs, ran.before = backend.logprobs(first, ModelRole.POLICY), whole_weights(backend)
        for step in range(steps):
            share = share_of(many_prompts(step), place, size, step)
            with kept_gradients(backend, ran.gradients if step == 0 else {}):
                ran.metrics.append(backend.update(share, PlainObjective()))
        ran.weights = whole_weights(backend)
        ran.probed = backend.probe(np.arange(2, 20, dtype=np.int32))
        ran.reference = backend.logprobs(first, ModelRole.REFERENCE)
        ran.held = sum(part(item).numel() for item in backend.policy.parameters())
    return ran


@contextmanager
def kept_gradients(backend: TorchBackend, kept: dict[str, np.ndarray]) -> Iterator[None]:
    """Fill ``kept`` with the gradients that a step sees before it clips, whole, by tensor."""
    step = backend.optimizer.step

    def spying() -> dict[str, float]:
        for name, item in backend.policy.model.named_parameters():
            if item.grad is not None:
                kept[name] = (item.grad.full_tensor() if isinstance(item.grad, DTensor) else item.grad).double().numpy().copy()
        return step()

    backend.optimizer.step = spying  # type: ignore[method-assign]
    yield
    backend.optimizer.step = step  # type: ignore[method-assign]


def part(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole_weights(backend: TorchBackend) -> dict[str, np.ndarray]:
    """float64 of each tensor, on rank 0; of a model that is divided, no rank holds more than the bucket that was asked for."""
    most = 4096
    for bucket in backend.weight_source().buckets(most):
        held = sum(tensor.data.nbytes for tensor in bucket.values())
        assert held <= most or len(bucket) == 1
        assert backend.ranks.rank == 0 or not backend.layout.split or not bucket
    return {name: np.array(tensor.data, np.float64) for name, tensor in handed_out(backend).items()}


class Refusing(PlainObjective):
    def __call__(self, logprobs: torch.Tensor, batch: LossBatch) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        raise ZeroDivisionError("planted in the objective")


def saved(backend: TorchBackend, place: Path) -> dict[str, Any]:
    """Save after one step, step on while it is written; the weights then and after."""
    share = [share_of(many_prompts(seed), *backend.data_parallel, 0) for seed in range(2)]
    backend.update(share[0], PlainObjective())
    found: dict[str, Any] = {"saved": masters(backend)}
    (place / "model").mkdir(parents=True, exist_ok=True)
    with mock.patch.object(model_files, "PART_BYTES", 20_000):  # so that every rank writes some
        backend.save_model(place / "model")
        backend.save_model(place / "export", "bfloat16")
    saving = backend.save(place / "trainer")
    found["metrics"], found["after"] = backend.update(share[1], PlainObjective()), masters(backend)
    saving.result()
    assert saving.done()
    found["files"] = sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
    return found


def resumed(backend: TorchBackend, place: Path) -> dict[str, Any]:
    """Load and make the step that ``saved`` made."""
    backend.load(place / "trainer")
    found: dict[str, Any] = {"saved": masters(backend)}
    found["metrics"] = backend.update(share_of(many_prompts(1), *backend.data_parallel, 0), PlainObjective())
    return {**found, "after": masters(backend)}


def damaged(backend: TorchBackend, rank: int, place: Path) -> str:
    """What ``load`` says if a bit of a file is flipped that rank 1 alone looks at, and that is mended afterwards."""
    file = place / "trainer" / "shards" / "__0_0.distcp"
    whole = file.read_bytes() if rank == 1 else b""
    if rank == 1:
        file.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    said = error_of(lambda: backend.load(place / "trainer"))
    if rank == 1:
        file.write_bytes(whole)
    return said


def masters(backend: TorchBackend) -> dict[str, np.ndarray]:
    """The weights as they are kept, whole."""
    weights = named_weights(backend.policy.model)
    return {name: (w.full_tensor() if isinstance(w, DTensor) else w).detach().numpy().copy() for name, w in weights.items()}


def resume(rank: int, size: int, rendezvous: str, layout: Layout, folder: str, dtype: str) -> dict[str, Any]:
    """``resumed`` by another layout than the one that saved."""
    with closing(started(context_of(str(Path(folder) / "model"), layout, rank, rendezvous, dtype), ExactBackend)) as backend:
        return resumed(backend, Path(folder))


def save(rank: int, size: int, rendezvous: str, layout: Layout, model: str, folder: str, dtype: str) -> dict[str, Any]:
    """``saved`` alone."""
    with closing(started(context_of(model, layout, rank, rendezvous, dtype), ExactBackend)) as backend:
        return saved(backend, Path(folder))


def failing(backend: TorchBackend, rank: int) -> list[str]:
    """An error in the objective of rank 1, a step as if nothing had been, and one between two layers of rank 1, which ends it."""
    share = share_of(many_prompts(2), *backend.data_parallel, 0)
    said = [error_of(lambda: backend.update(share, Refusing() if rank == 1 else PlainObjective()))]
    said.append(error_of(lambda: backend.update(share, PlainObjective())))

    def planted(*_: Any) -> None:
        raise ZeroDivisionError("planted in a layer")

    if rank == 1:
        backend.policy.model.model.layers[1].mlp.register_forward_pre_hook(planted)
    said.append(error_of(lambda: backend.update(share, PlainObjective())))
    return said


def exact(rank: int, size: int, rendezvous: str, cases: Mapping[str, tuple[Layout, bool]], model: str, unplanned: str) -> dict[str, Any]:
    """By case, a layout and whether adapters are trained: three steps in float64; in the third one a place has nothing. Of ``unplanned``,
    what the first layout says."""
    found: dict[str, Any] = {}
    with closing(StarRanks(rank, size, rendezvous, deadline=400.0)) as lobby:
        for name, (layout, adapted) in cases.items():
            found[name] = trained(rank, layout, next_rendezvous(lobby), model, "float64", LORA if adapted else None, steps=3)
        if unplanned:
            context = context_of(unplanned, next(iter(cases.values()))[0], rank, next_rendezvous(lobby), "float32")
            found[UNPLANNED] = error_of(lambda: started(context))
    return found


def session(rank: int, size: int, rendezvous: str, layout: Layout, models: Mapping[str, str], folder: str) -> dict[Any, Any]:
    """Every check of one layout in one set of processes: most of a rank's time goes into its imports."""
    found: dict[Any, Any] = {}
    with closing(StarRanks(rank, size, rendezvous, deadline=400.0)) as lobby:
        for name, model in models.items():
            if name == UNPLANNED:
                continue
            lora = LORA if name.endswith("adapters") else None
            for dtype in ("float64", "float32"):
                found[name, dtype] = trained(rank, layout, next_rendezvous(lobby), model, dtype, lora)
        if size == 1:
            return found
        with closing(started(context_of(models["qwen3 untied"], layout, rank, next_rendezvous(lobby), "bfloat16"))) as backend:
            found["saved"] = saved(backend, Path(folder))
        with closing(started(context_of(f"{folder}/model", layout, rank, next_rendezvous(lobby), "bfloat16"))) as backend:
            found["damaged"] = damaged(backend, rank, Path(folder))
            found["resumed"] = resumed(backend, Path(folder))
            found["failed"] = failing(backend, rank)
        if layout.tensor > 1:
            last = context_of(models[UNPLANNED], layout, rank, next_rendezvous(lobby), "float32")
            found["refused"] = error_of(lambda: started(last))
    return found
