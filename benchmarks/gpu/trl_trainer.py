"""TRL's GRPOTrainer on the same shape and load: with its own defaults, and with the fastest of some settings, none of them with vLLM."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.gpu.device import card, free, peak_gigabytes, reset_peak, settle, smaller_until_it_fits
from benchmarks.gpu.flops import Shape, generation_flops, mfu, update_flops
from benchmarks.gpu.models import SHAPES, TINY, write_model
from benchmarks.gpu.setting import Outcome, Setting
from benchmarks.gpu.workload import FULL, TINY_LOAD, Load

__all__ = ["CANDIDATES", "DEFAULTS", "measure", "missing"]

DEFAULTS = "its defaults"
CANDIDATES: dict[str, dict[str, Any]] = {
    "no gradient checkpointing, large micro-batches": {"gradient_checkpointing": False, "per_device_train_batch_size": 32},
    "the same, static cache": {"gradient_checkpointing": False, "per_device_train_batch_size": 32, "cache_implementation": "static"},
    "the same, continuous batching": {
        "gradient_checkpointing": False,
        "per_device_train_batch_size": 32,
        "use_transformers_continuous_batching": True,
    },
}
"""What may be faster; tried in this order while there is time, and the fastest that works is the one that is shown."""

LONGEST = 150
"""Seconds after which one setting is given up: some compile for minutes, or wait for what does not come."""
SHORTEST = 30
"""The same with a tiny model."""
SPARE = 30
"""Seconds that must be left when a setting is given up, for the results."""
_REQUIRED = ("trl", "datasets", "accelerate")


def missing() -> list[str]:
    """Packages that this comparison needs and this interpreter lacks."""
    return [name for name in _REQUIRED if find_spec(name) is None]


def measure(setting: Setting, name: str) -> Outcome:
    """The defaults, then the candidates; ``not run`` where TRL is absent."""
    if absent := missing():
        return Outcome(said=f"not run: {', '.join(absent)} not installed", status="not run")
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    shape, load = (TINY, TINY_LOAD) if setting.tiny else (SHAPES[name], FULL)
    model = write_model(shape, setting.scratch / "model", setting.device)
    free(setting.device)
    longest = SHORTEST if setting.tiny else LONGEST
    tried: dict[str, dict[str, Any]] = {}
    for label, changes in {DEFAULTS: {}, **CANDIDATES}.items():
        tried[label] = _attempt(partial(_trained, setting, shape, load, model, changes), longest, setting.until)
        setting.report(_outcome(name, tried))
        free(setting.device)
    return _outcome(name, tried)


def _outcome(name: str, tried: dict[str, dict[str, Any]]) -> Outcome:
    """A row for the defaults and one for the fastest of what was tried so far."""
    worked = {label: row for label, row in tried.items() if "error" not in row}
    if not worked:
        return Outcome(said=f"no setting works: {tried[DEFAULTS]['error']}", figures=dict(tried), status="failed")
    best = min(worked, key=lambda label: worked[label]["step_seconds"])
    shown = [label for label in dict.fromkeys((DEFAULTS, best)) if label in worked]
    rows = [{"shape": name, "who": f"TRL, {label}", **worked[label]} for label in shown]
    said = ", ".join(f"a step {worked[label]['step_seconds']:.2f} s with {label}" for label in shown)
    return Outcome(said=said, figures=dict(tried), rows=rows)


def _attempt(run: Callable[[], dict[str, Any]], longest: int, until: float) -> dict[str, Any]:
    """What a setting gave, or why it does not work here: another library's failure is a result of this comparison, not its end."""
    if time.monotonic() + longest + SPARE > until:
        return {"error": "not begun: out of time"}

    def give_up(*args: Any) -> None:
        raise TimeoutError(f"took longer than {longest} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(longest)
    try:
        return run()
    except Exception as error:
        reason = (str(error).strip().splitlines() or [""])[0][:200]
        return {"error": f"{type(error).__name__}: {reason}"}
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@dataclass
class Stopwatch:
    """Seconds and tokens of one optimizer step, which may generate more than once. ``tokens``: of completions; ``lengths``: of prompts and
    their completions."""

    device: str
    began: float = 0.0
    step: float = 0.0
    generation: float = 0.0
    tokens: int = 0
    lengths: list[int] = field(default_factory=list)

    def begin(self) -> None:
        """A step starts; what earlier ones took is forgotten, so that the last one counts, which is warm."""
        settle(self.device)
        reset_peak(self.device)
        self.generation, self.tokens, self.lengths, self.began = 0.0, 0, [], time.perf_counter()

    def end(self) -> None:
        """A step has ended."""
        settle(self.device)
        self.step = time.perf_counter() - self.began

    def watch(self, generate: Callable[..., Any]) -> Callable[..., Any]:
        """``generate`` (prompt ids, …) -> (completion ids, …), with its seconds and the lengths of its sequences kept."""

        def watched(prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
            settle(self.device)
            start = time.perf_counter()
            result = generate(prompt_ids, *args, **kwargs)
            settle(self.device)
            self.generation += time.perf_counter() - start
            self.lengths += [len(prompt) + len(new) for prompt, new in zip(prompt_ids, result[0], strict=True)]
            self.tokens += sum(map(len, result[0]))
            return result

        return watched


def _trained(setting: Setting, shape: Shape, load: Load, model: Path, changes: dict[str, Any]) -> dict[str, Any]:
    """Two optimizer steps, of which the second is measured."""
    largest = min(int(changes.get("per_device_train_batch_size", 8)), load.sequences)
    watch = Stopwatch(setting.device)

    def attempt(rows: int) -> float | None:
        free(setting.device)
        trainer = _trainer(setting, load, model, {**changes, "per_device_train_batch_size": rows}, watch)
        trainer.train()
        return peak_gigabytes(setting.device)

    rows, peak = smaller_until_it_fits(setting.device, largest, attempt)
    flops = sum(update_flops(shape, 1, length) for length in watch.lengths)
    # It computes the prompt of every completion.
    generation = generation_flops(shape, load.sequences, load.sequences, load.prompt, watch.tokens // load.sequences)
    update = watch.step - watch.generation
    return {
        "generated_tokens": watch.tokens,
        "generation_seconds": round(watch.generation, 4),
        "generated_tokens_per_second": round(watch.tokens / watch.generation, 1),
        "generation_mfu": mfu(generation, watch.generation, card(setting.device)),
        "update_seconds": round(update, 4),
        "trained_tokens_per_second": round(sum(watch.lengths) / update, 1),
        "update_mfu": mfu(flops, update, card(setting.device)),
        "step_seconds": round(watch.step, 4),
        "step_peak_gb": peak,
        "rows_per_forward": rows,
    }


def _trainer(setting: Setting, load: Load, model: Path, changes: dict[str, Any], watch: Stopwatch) -> Any:
    from datasets import Dataset
    from transformers import TrainerCallback

    trl = import_module("trl")  # by name: nothing of this repository requires it

    class Steps(TrainerCallback):
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            watch.begin()

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            watch.end()

    rows = changes["per_device_train_batch_size"]
    config = trl.GRPOConfig(
        output_dir=str(setting.scratch / "trl"),
        num_generations=load.group,
        max_completion_length=load.new,
        gradient_accumulation_steps=load.sequences // rows,
        max_steps=2,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        **({"use_cpu": True, "bf16": False} if setting.device == "cpu" else {}),
        **changes,
    )
    trainer = trl.GRPOTrainer(
        model=str(model),
        reward_funcs=_reward,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": [_prompt(load, number) for number in range(4 * load.prompts)]}),
        processing_class=_tokenizer(),
        callbacks=[Steps()],
    )
    trainer._generate_single_turn = watch.watch(trainer._generate_single_turn)
    return trainer


def _prompt(load: Load, number: int) -> str:
    """Words of the tokenizer's, ``load.prompt`` of them, others for each prompt."""
    return " ".join(f"w{2 + (31 * number + 7 * place) % 500}" for place in range(load.prompt))


def _reward(completions: list[Any], **kwargs: Any) -> list[float]:
    """Differs within a group, so that every completion has an advantage."""
    return [float(place % 7) for place in range(len(completions))]


def _tokenizer() -> Any:
    """A word a token, as many as the smallest model has; 0 ends, 1 pads."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {"<eos>": 0, "<pad>": 1} | {f"w{number}": number for number in range(2, 511)} | {"<unk>": 511}
    fast = Tokenizer(models.WordLevel(vocab=vocabulary, unk_token="<unk>"))
    fast.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=fast, eos_token="<eos>", pad_token="<pad>", unk_token="<unk>")
