"""Generation and one update of rlcore's own backends at a known shape, beside ``transformers.generate`` on the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from benchmarks.gpu.device import backend_device, card, free, peak_gigabytes, reset_peak, smaller_until_it_fits, timed
from benchmarks.gpu.flops import Shape, generation_flops, mfu, update_flops
from benchmarks.gpu.models import SHAPES, TINY, write_model
from benchmarks.gpu.setting import Outcome, Setting
from benchmarks.gpu.workload import FULL, TINY_LOAD, Load, batch_of, contexts, drain, make_engine, make_trainer, objective, requests
from rlcore.api import TrainBatch

__all__ = ["measure"]

DTYPE = "bfloat16"


def measure(setting: Setting, name: str) -> Outcome:
    """Warm up each, measure it once more, compare."""
    shape, load = (TINY, TINY_LOAD) if setting.tiny else (SHAPES[name], FULL)
    model = write_model(shape, setting.scratch / "model", setting.device)
    free(setting.device)
    hugging_face = _generate(setting, shape, load, model)
    free(setting.device)
    ours, batch = _engine(setting, shape, load, model)
    free(setting.device)
    update = _update(setting, shape, load, model, batch)
    rows = [
        {"shape": name, "who": "transformers.generate", **hugging_face},
        {"shape": name, "who": "rlcore", **ours, **update},
    ]
    said = (
        f"generation {ours['generated_tokens_per_second']:.0f} tokens/s (generate: {hugging_face['generated_tokens_per_second']:.0f}); "
        f"update {update['update_seconds']:.2f} s, {update['trained_tokens_per_second']:.0f} tokens/s, MFU {_percent(update['update_mfu'])}"
    )
    return Outcome(said=said, figures={"rlcore": rows[1], "transformers.generate": rows[0]}, rows=rows)


def _generate(setting: Setting, shape: Shape, load: Load, model: Path) -> dict[str, Any]:
    """Every prompt repeated for its group, sampled with the library's own loop and its default cache."""
    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16).to(backend_device(setting.device)).eval()
    prompts = np.repeat(np.stack(contexts(load, shape.vocabulary)), load.group, axis=0).astype(np.int64)
    ids = torch.from_numpy(prompts).to(loaded.device)
    mask = torch.ones_like(ids)

    def once(new: int) -> int:
        made = loaded.generate(
            input_ids=ids, attention_mask=mask, do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=new, pad_token_id=1
        )
        return int((made[:, ids.shape[1] :] != 1).sum())

    once(min(8, load.new))
    reset_peak(setting.device)
    with timed(setting.device) as span:
        tokens = once(load.new)
    return _generated(setting, shape, load, tokens, span.seconds, load.sequences)


def _engine(setting: Setting, shape: Shape, load: Load, model: Path) -> tuple[dict[str, Any], TrainBatch]:
    engine = make_engine(model, load, setting.device, DTYPE)
    drain(engine, requests(Load(prompts=load.prompts, group=load.group, prompt=load.prompt, new=8, row_tokens=0), shape.vocabulary, 0))
    reset_peak(setting.device)
    asked = requests(load, shape.vocabulary, 1)
    with timed(setting.device) as span:
        answers = drain(engine, asked)
    tokens = sum(len(answer.token_ids) for answer in answers.values())
    engine.close()
    return _generated(setting, shape, load, tokens, span.seconds, load.prompts), batch_of(asked, answers, load)


def _update(setting: Setting, shape: Shape, load: Load, model: Path, batch: TrainBatch) -> dict[str, Any]:
    def attempt(row_tokens: int) -> tuple[float, dict[str, float], float | None]:
        trainer = make_trainer(model, load, setting.device, DTYPE, row_tokens)
        try:
            trainer.update(batch, objective())
            trainer.timings()
            reset_peak(setting.device)
            with timed(setting.device) as span:
                trainer.update(batch, objective())
            return span.seconds, dict(trainer.timings()), peak_gigabytes(setting.device)
        finally:
            trainer.close()

    row_tokens, (seconds, split, peak) = smaller_until_it_fits(setting.device, load.row_tokens, attempt)
    lengths = [len(segment.context_ids) + len(segment.token_ids) for rollout in batch.rollouts for segment in rollout.segments]
    flops = sum(update_flops(shape, 1, length) for length in lengths)
    return {
        "update_seconds": round(seconds, 4),
        "update_split": {part: round(spent, 4) for part, spent in split.items()},
        "trained_tokens_per_second": round(sum(lengths) / seconds, 1),
        "update_mfu": mfu(flops, seconds, card(setting.device)),
        "update_peak_gb": peak,
        "tokens_per_forward": row_tokens,
    }


def _generated(setting: Setting, shape: Shape, load: Load, tokens: int, seconds: float, prompts: int) -> dict[str, Any]:
    flops = generation_flops(shape, prompts, load.sequences, load.prompt, tokens // load.sequences)
    return {
        "generated_tokens": tokens,
        "generation_seconds": round(seconds, 4),
        "generated_tokens_per_second": round(tokens / seconds, 1),
        "generation_mfu": mfu(flops, seconds, card(setting.device)),
        "generation_peak_gb": peak_gigabytes(setting.device),
    }


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{share:.1%}".replace("%", " %")
