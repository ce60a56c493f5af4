"""One run of TRL's ``GRPOTrainer`` on a folder of ``work``: ``python trl_side.py FOLDER THREADS``. The last line is one JSON object.

No reference model (``beta`` 0), no penalty, no checkpoint, no report. Everything that costs time and is not the work is off.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, LogitsProcessor, LogitsProcessorList, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

sys.path.insert(0, str(Path(__file__).parent))
from work import Work, row_lengths, spent  # beside this file, without the packages of rlcore


def main(folder: Path, threads: int) -> None:
    """Train, then print the figures."""
    torch.set_num_threads(threads)
    work = Work.read(folder)
    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder / "model", padding_side="left")
    marks = Marks()
    trainer = GRPOTrainer(
        model=model,
        args=settings(work, folder),
        train_dataset=prompts(folder),
        processing_class=tokenizer,
        reward_funcs=right if work.reward == "answer" else even,
        callbacks=[marks],
    )
    if work.sigma is not None:
        give_lengths(model, work, tokenizer.eos_token_id, trainer)
    trainer.train()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    rewards = [record["reward"] for record in trainer.state.log_history if "reward" in record]
    tokens = [record["completions/mean_length"] for record in trainer.state.log_history if "completions/mean_length" in record]
    outcome = {"reward": rewards[-1], "mean_length": sum(tokens) / len(tokens)}
    print(json.dumps({**spent(marks.seen, work), "peak_bytes": peak, **outcome}))


def settings(work: Work, folder: Path) -> GRPOConfig:
    """The hyperparameters of ``work``, the rest of TRL as it comes."""
    rows = work.prompts * work.group
    return GRPOConfig(
        output_dir=str(folder / "trl"),
        max_steps=work.warmup + work.steps,
        per_device_train_batch_size=work.forward_rollouts,
        gradient_accumulation_steps=rows // work.forward_rollouts,
        num_generations=work.group,
        max_completion_length=work.new_tokens,
        temperature=1.0,
        beta=0.0,
        loss_type="grpo",
        learning_rate=work.learning_rate,
        lr_scheduler_type="constant",
        adam_beta1=work.betas[0],
        adam_beta2=work.betas[1],
        weight_decay=work.weight_decay,
        max_grad_norm=work.max_grad_norm,
        optim="adamw_torch_fused",
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
        dataloader_num_workers=0,
        dataloader_pin_memory=False,
        seed=0,
    )


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
    """The clocks at the end of each step."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, float]] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Called by the trainer."""
        self.seen.append((time.perf_counter(), time.process_time()))


class EndAt(LogitsProcessor):
    """Forces the end of sequence as the last token of each row's length."""

    def __init__(self, lengths: torch.Tensor, prompt: int, eos: int) -> None:
        self._lengths, self._prompt, self._eos = lengths, prompt, eos

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """[rows, V]"""
        due = self._lengths <= input_ids.shape[1] - self._prompt + 1
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
    main(Path(sys.argv[1]), int(sys.argv[2]))
