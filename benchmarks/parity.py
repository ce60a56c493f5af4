"""`make bench-parity`: what every layout of the torch trainer computes, beside one process. Five steps of AdamW on a tiny Qwen3.

`--all`: layouts of four processes too; `--write`: the table goes into docs/training.md. The last line is one JSON object; exit code 1 if a
difference is above its bound.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from rlcore_plugin_torch.backend import TorchBackend
from rlcore_plugin_torch.options import TorchOptions
from torch.distributed.tensor import DTensor
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from rlcore.api import OptimizerSettings, RlcoreError, TrainBatch, TrainingContext
from rlcore.testing import make_rollout, make_train_batch
from rlcore.testing.objectives import PlainObjective
from rlcore.testing.rank_processes import next_rendezvous, run_ranks
from rlcore.testing.ranks import StarRanks
from rlcore.testing.suites.layout_lives import LAYOUTS, RankLayout
from rlcore.testing.weights import handed_out

PAGE = Path(__file__).resolve().parents[1] / "docs" / "training.md"
BEGIN, END = "<!-- parity: make bench-parity ARGS='--all --write' -->\n", "<!-- /parity -->"
STEPS, VOCABULARY = 5, 97
BOUNDS = {"loss": 1e-9, "grad_norm": 1e-9, "weights": 1e-9, "gradient_fp32": 1e-5}
"""Relative, of loss, gradient norm and all weights together after five steps in float64, and of the worst tensor's gradient in float32."""


@dataclass(kw_only=True)
class Run:
    """What rank 0 ends with: metrics of the steps, weights after the last, gradients of the first before clipping."""

    metrics: list[Mapping[str, float]] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    gradients: dict[str, np.ndarray] = field(default_factory=dict)


def exact_norm(self: Qwen3RMSNorm, hidden_states: torch.Tensor) -> torch.Tensor:
    """The norm of transformers without its way through float32."""
    squares = hidden_states.pow(2).mean(-1, keepdim=True)
    return self.weight * (hidden_states * torch.rsqrt(squares + self.variance_epsilon))


class WatchedBackend(TorchBackend):
    """Keeps the gradients that a step sees before it clips."""

    def setup(self, context: TrainingContext) -> None:
        """With norms that compute in the dtype of the model."""
        Qwen3RMSNorm.forward = exact_norm  # type: ignore[method-assign]
        super().setup(context)
        self.seen: dict[str, np.ndarray] = {}
        step = self.optimizer.step

        def watched() -> dict[str, float]:
            named = [(name, item.grad) for name, item in self.policy.model.named_parameters() if item.grad is not None]
            whole = [(name, grad.full_tensor() if isinstance(grad, DTensor) else grad) for name, grad in named]
            self.seen = self.seen or {name: grad.double().numpy().copy() for name, grad in whole}
            return step()

        self.optimizer.step = watched  # type: ignore[method-assign]


def train_all(rank: int, size: int, rendezvous: str, contexts: Sequence[TrainingContext]) -> list[Run]:
    """One after the other in the same processes."""
    with closing(StarRanks(rank, size, rendezvous, 200.0)) as lobby:
        return [train(replace(context, rank=rank, rendezvous=next_rendezvous(lobby) if size > 1 else "")) for context in contexts]


def train(context: TrainingContext) -> Run:
    """Five steps: in the fourth one place has all."""
    backend, run = WatchedBackend(context, TorchOptions(threads=1, ranks_deadline=100.0)), Run()
    with closing(backend):
        backend.setup(context)
        place, size = backend.data_parallel
        for step in range(STEPS):
            batch = batch_of(step)
            owners = np.zeros_like(batch.group) if step == 3 else batch.group % size
            run.metrics.append(backend.update(batch.take(np.flatnonzero(owners == place)), PlainObjective()))
        run.weights = {name: np.array(tensor.data, np.float64) for name, tensor in handed_out(backend).items()}
        run.gradients = backend.seen
    return run


def batch_of(seed: int) -> TrainBatch:
    """Four prompts with three completions of 1 to 12 tokens."""
    draw = np.random.default_rng(seed)
    group = [row // 3 for row in range(12)]
    prompts = [draw.integers(1, VOCABULARY, 4 + prompt).tolist() for prompt in range(4)]
    tokens = [draw.integers(1, VOCABULARY, int(length)).tolist() for length in draw.integers(1, 13, 12)]
    rollouts = [make_rollout(prompts[row // 3], tokens[row], prompt_id=f"p{row // 3}", index=row % 3) for row in range(12)]
    return make_train_batch(rollouts, draw.normal(size=12).tolist(), group=group, in_loss=[True] * 12)


def context_of(layout: RankLayout, model: str, dtype: str) -> TrainingContext:
    """Gradients are clipped, weights decay, the learning rate falls."""
    return TrainingContext(
        model=model,
        optimizer=OptimizerSettings(learning_rate=1e-3, weight_decay=0.1, max_grad_norm=0.05, total_steps=2 * STEPS),
        rollouts_per_forward=4,
        tokens_per_forward=200,
        prompts_per_slice=10,
        dtype=dtype,
        device="cpu",
        world_size=layout.ranks,
        **layout.settings,  # type: ignore[arg-type]
    )


def measure(layouts: Sequence[RankLayout], model: str) -> dict[str, dict[str, float]]:
    """Differences to one process by layout; processes are started once for all layouts of one count."""
    runs: dict[tuple[str, str], Run] = {}
    for size in sorted({layout.ranks for layout in layouts}):
        asked = [(layout, dtype) for layout in layouts if layout.ranks == size for dtype in ("float64", "float32")]
        contexts = [context_of(layout, model, dtype) for layout, dtype in asked]
        answers = run_ranks("benchmarks.parity:train_all", size, contexts, timeout=600.0) if size > 1 else [train_all(0, 1, "", contexts)]
        if isinstance(answers[0], RlcoreError):
            raise answers[0]
        runs |= {(layout.name, dtype): run for (layout, dtype), run in zip(asked, answers[0], strict=True)}
    one, rough = runs[LAYOUTS[0].name, "float64"], runs[LAYOUTS[0].name, "float32"]
    names = [layout.name for layout in layouts if layout.ranks > 1]
    return {name: differences(runs[name, "float64"], one, runs[name, "float32"], rough) for name in names}


def differences(mine: Run, one: Run, mine_rough: Run, one_rough: Run) -> dict[str, float]:
    """By the names of ``BOUNDS``."""

    def figure(name: str) -> float:
        return max(abs(own[name] - due[name]) / abs(due[name]) for own, due in zip(mine.metrics, one.metrics, strict=True))

    gradients = [off({name: mine_rough.gradients[name]}, {name: due}) for name, due in one_rough.gradients.items()]
    return {
        "loss": figure("loss"),
        "grad_norm": figure("grad_norm"),
        "weights": off(mine.weights, one.weights),
        "gradient_fp32": max(gradients),
    }


def off(mine: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> float:
    """Norm of the difference over the norm, of all tensors together."""
    difference = math.hypot(*(float(np.linalg.norm(mine[name] - due)) for name, due in theirs.items()))
    return difference / math.hypot(*(float(np.linalg.norm(due)) for due in theirs.values()))


def tiny_model(folder: str) -> str:
    """Qwen3 with a vocabulary that nothing divides; its norms have weights of their own."""
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "head_dim": 16}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True, "initializer_range": 0.2}
    model = Qwen3ForCausalLM(Qwen3Config(**sizes, **heads, pad_token_id=None, bos_token_id=None, eos_token_id=None))
    for name, weight in model.named_parameters():
        if "norm" in name:
            weight.data += 0.2 * torch.randn_like(weight)
    model.save_pretrained(folder)
    return folder


def table(found: Mapping[str, Mapping[str, float]]) -> str:
    """Markdown."""
    head = "| layout | loss, fp64 | gradient norm, fp64 | weights after 5 steps, fp64 | worst tensor's gradient, fp32 |\n"
    head += "|---|---|---|---|---|\n"
    rows = [f"| {name} | " + " | ".join(f"{values[key]:.1e}" for key in BOUNDS) + " |\n" for name, values in found.items()]
    bounds = "| *at most* | " + " | ".join(f"*{bound:.0e}*" for bound in BOUNDS.values()) + " |\n"
    return head + "".join(rows) + bounds


def write(found: Mapping[str, Mapping[str, float]]) -> None:
    """Put the table between the marks of the page; ValueError if they are not there."""
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} lacks {BEGIN.strip()!r} or {END!r}: the table stands between the two")
    PAGE.write_text(f"{before}{begin}\n{table(found)}\n{end}{after}", encoding="utf-8")


def main() -> int:
    """Measure, print, compare with the bounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="layouts of four processes too")
    parser.add_argument("--write", action="store_true", help="put the table into docs/training.md")
    arguments = parser.parse_args()
    declared, most = TorchBackend.capabilities.layouts, 4 if arguments.all else 2
    layouts = [layout for layout in LAYOUTS if layout.needs <= declared and layout.ranks <= most]
    with TemporaryDirectory(prefix="rlcore-parity-") as folder:
        found = measure(layouts, tiny_model(folder))
    print(table(found))
    if arguments.write:
        write(found)
    broken = [f"{name}: {key}" for name, values in found.items() for key, bound in BOUNDS.items() if not values[key] <= bound]
    print(json.dumps({"parity": found, "bounds": BOUNDS, "broken": broken}))
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
