"""One run of TRL's ``GRPOTrainer`` on a folder of ``work``: ``python trl_side.py FOLDER THREADS [CHANGES]``. The last line is one JSON
object. ``CHANGES``: a JSON object of arguments of ``GRPOConfig`` instead of those below; and ``weights``, which is none of them: the number
format of the weights themselves.

No reference model (``beta`` 0), no penalty, no checkpoint, no report. Everything that costs time and is not the work is off.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, LogitsProcessor, LogitsProcessorList, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

sys.path.insert(0, str(Path(__file__).parent))
from work import Work, clocks, peak_bytes, row_lengths, spent  # beside this file, without the packages of rlcore


def main(folder: Path, threads: int, changes: dict[str, Any]) -> None:
    """Train, then print the figures."""
    torch.set_num_threads(threads)
    work = Work.read(folder)
    weights = changes.pop("weights", "float32")
    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=getattr(torch, weights))
    tokenizer = AutoTokenizer.from_pretrained(folder / "model", padding_side="left")
    marks = Marks(work.device)
    trainer = GRPOTrainer(
        model=model,
        args=GRPOConfig(**{**settings(work, folder), **changes}),
        train_dataset=prompts(folder),
        processing_class=tokenizer,
        reward_funcs=right if work.reward == "answer" else even,
        callbacks=[marks],
    )
    trainer._generate_single_turn = marks.timed(trainer._generate_single_turn)
    if work.sigma is not None:
        give_lengths(model, work, tokenizer.eos_token_id, trainer)
    trainer.train()
    rewards = [record["reward"] for record in trainer.state.log_history if "reward" in record]
    tokens = [record["completions/mean_length"] for record in trainer.state.log_history if "completions/mean_length" in record]
    generation = sum(marks.generation[-work.steps :]) / work.steps
    outcome = {"reward": rewards[-1], "mean_length": sum(tokens) / len(tokens), "split": {"generation": generation}}
    print(json.dumps({**spent(marks.seen, work), "peak_bytes": peak_bytes(work.device), **outcome}))


def settings(work: Work, folder: Path) -> dict[str, Any]:
    """The hyperparameters of ``work``, the rest of TRL as it comes."""
    rows = work.prompts * work.group
    return {
        "output_dir": str(folder / "trl"),
        "max_steps": work.warmup + work.steps,
        "per_device_train_batch_size": work.forward_rollouts,
        "gradient_accumulation_steps": rows // work.forward_rollouts,
        "num_generations": work.group,
        "max_completion_length": work.new_tokens,
        "temperature": 1.0,
        "beta": 0.0,
        "loss_type": "grpo",
        "learning_rate": work.learning_rate,
        "lr_scheduler_type": "constant",
        "adam_beta1": work.betas[0],
        "adam_beta2": work.betas[1],
        "weight_decay": work.weight_decay,
        "max_grad_norm": work.max_grad_norm,
        "optim": "adamw_torch_fused",
        "gradient_checkpointing": False,
        "bf16": work.dtype == "bfloat16",
        "use_cpu": work.device == "cpu",
        "report_to": [],
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": False,
        "seed": 0,
    }


def prompts(folder: Path) -> Dataset:
    """The rows of ``train.jsonl``."""
    rows = [json.loads(line) for line in (folder / "train.jsonl").read_text(encoding="utf-8").splitlines()]
    return Dataset.from_list([{"prompt": [row["messages"]], "gt_answer": row["gt_answer"]} for row in rows])


def right(completions: list[Any], gt_answer: list[str], **_: Any) -> list[float]:
    """String equality with the answer in its box."""
    texts = [completion[0]["content"].strip() for completion in completions]
    return [float(text == f"\\boxed{{{answer}}}") for text, answer in zip(texts, gt_answer, strict=True)]


def even(completions: list[Any], **_: Any) -> list[float]:
    """1 for a response of an even number of characters."""
    return [float(len(completion[0]["content"]) % 2 == 0) for completion in completions]


class Marks(TrainerCallback):
    """The clocks at the end of each step, and the seconds of each that generation took."""

    def __init__(self, device: str) -> None:
        self.seen: list[tuple[float, float]] = []
        self.generation: list[float] = []
        self._device, self._generated = device, 0.0

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Called by the trainer."""
        self.seen.append(clocks(self._device))
        self.generation.append(self._generated)
        self._generated = 0.0

    def timed(self, generate: Callable[..., Any]) -> Callable[..., Any]:
        """The same, with its seconds added to those of the step."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            before, _ = clocks(self._device)
            made = generate(*args, **kwargs)
            self._generated += clocks(self._device)[0] - before
            return made

        return timed


class EndAt(LogitsProcessor):
    """Forces the end of sequence as the last token of each row's length."""

    def __init__(self, lengths: torch.Tensor, prompt: int, eos: int) -> None:
        self._lengths, self._prompt, self._eos = lengths, prompt, eos

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """[rows, V]"""
        due = self._lengths.to(input_ids.device) <= input_ids.shape[1] - self._prompt + 1
        scores[due] = float("-inf")
        scores[due, self._eos] = 0.0
        return scores


def give_lengths(model: Any, work: Work, eos: int, trainer: GRPOTrainer) -> None:
    """From here on ``generate`` ends each row at the length that the stop rule gives it."""
    plain = model.generate

    def generate(*args: Any, **kwargs: Any) -> Any:
        lengths = torch.from_numpy(row_lengths(work, trainer.state.global_step))
        ends = EndAt(lengths, kwargs["input_ids"].shape[1], eos)
        return plain(*args, logits_processor=LogitsProcessorList([ends]), **kwargs)

    model.generate = generate


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]) if len(sys.argv) > 3 else {})
