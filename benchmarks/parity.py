"""`make bench-parity`: what every layout of the torch trainer computes, beside one process. Five steps of AdamW on a tiny Qwen3.

`--colossalai FOLDER`: the layouts of trainer colossalai too, in the environment of that folder; `--all`: those of four processes;
`--write`: the tables go into docs/explanation/layouts.md. The last line is one JSON object; exit code 1 if a difference is above its bound.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from rlcore_plugin_torch.backend import TorchBackend
from rlcore_plugin_torch.options import TorchOptions
from torch.distributed.tensor import DTensor
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from benchmarks import colossal_parity
from benchmarks.parity_steps import VOCABULARY, Run, context_of, off, train, worst_step
from rlcore.api import RlcoreError, TrainingContext
from rlcore.testing.training.layout_runs import LAYOUTS, RankLayout
from rlcore.testing.training.rank_processes import next_rendezvous, run_ranks
from rlcore.testing.training.star_ranks import StarRanks

PAGE = Path(__file__).resolve().parents[1] / "docs" / "explanation" / "layouts.md"
MADE_BY = "make bench-parity ARGS='--all --write'"
BOUNDS = {"loss": 1e-9, "grad_norm": 1e-9, "weights": 1e-9, "gradient_fp32": 1e-5}
"""Relative, of loss, gradient norm and all weights together after five steps in float64, and of the worst tensor's gradient in float32."""


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
        placed = [replace(context, rank=rank, rendezvous=next_rendezvous(lobby) if size > 1 else "") for context in contexts]
        return [train(WatchedBackend(context, TorchOptions(threads=1, ranks_deadline=100.0)), context) for context in placed]


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

    gradients = [off({name: mine_rough.gradients[name]}, {name: due}) for name, due in one_rough.gradients.items()]
    return {
        "loss": worst_step(mine, one, "loss"),
        "grad_norm": worst_step(mine, one, "grad_norm"),
        "weights": off(mine.weights, one.weights),
        "gradient_fp32": max(gradients),
    }


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


def write(name: str, made: str) -> None:
    """Put a table between the marks of this name on the page; ValueError if they are not there."""
    begin, end = f"<!-- {name}: {MADE_BY} -->\n", f"<!-- /{name} -->"
    before, begun, rest = PAGE.read_text(encoding="utf-8").partition(begin)
    _, ended, after = rest.partition(end)
    if not begun or not ended:
        raise ValueError(f"{PAGE.name} lacks {begin.strip()!r} or {end!r}: the table stands between the two")
    PAGE.write_text(f"{before}{begin}\n{made}\n{end}{after}", encoding="utf-8")


def main() -> int:
    """Measure, print, compare with the bounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="layouts of four processes too")
    parser.add_argument("--colossalai", type=Path, metavar="FOLDER", help="trainer colossalai too, in the environment of this folder")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/explanation/layouts.md")
    arguments = parser.parse_args()
    declared, most = TorchBackend.capabilities.layouts, 4 if arguments.all else 2
    layouts = [layout for layout in LAYOUTS if layout.needs <= declared and layout.ranks <= most]
    with TemporaryDirectory(prefix="rlcore-parity-") as folder:
        found = measure(layouts, tiny_model(folder))
    broken = [f"{name}: {key}" for name, values in found.items() for key, bound in BOUNDS.items() if not values[key] <= bound]
    tables, answer = {"parity": table(found)}, {"parity": found, "bounds": BOUNDS}
    if arguments.colossalai:
        other = colossal_parity.measure(arguments.colossalai, everything=arguments.all)
        broken += colossal_parity.broken(other)
        tables |= {"colossalai parity": colossal_parity.parity_table(other), "colossalai memory": colossal_parity.memory_table(other)}
        answer |= {"colossalai": other, "colossalai_bounds": colossal_parity.BOUNDS}
    for name, made in tables.items():
        print(made)
        if arguments.write:
            write(name, made)
    print(json.dumps({**answer, "broken": broken}))
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
