"""The quickstart's base model: a tiny Qwen2 that half learns the task by supervised learning, so that RL has something to improve.

Imports torch and transformers. Nothing here depends on RL: the result is an ordinary Hugging Face model, and the same seed gives the same
model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from rlcore.api import RunError
from rlcore_plugin_quickstart.digits_tokenizer import ASSISTANT, END, PAD, VOCABULARY

__all__ = ["Encoded", "WarmStart", "WarmStartSettings", "encode", "greedy_accuracy", "new_model", "save_model", "warm_start"]

HEADS = 3


class Exercise(Protocol):
    """A problem of a task: a chat that is learned from, and the right one."""

    @property
    def lesson(self) -> list[dict[str, Any]]: ...
    @property
    def solution(self) -> list[dict[str, Any]]: ...


@dataclass(frozen=True, slots=True)
class WarmStartSettings:
    """The length and rate of the warm start. They are part of the recipe, so a change of one is a new recipe version.

    It stops at the first check at which greedy accuracy on ``n_check`` training problems exceeds ``target``, and keeps the state of the
    check before. ``heads``: the number of heads of the model, each of dimension 32.

    ``steps``: it has exactly as many steps, its rate falls linearly to 0, and it keeps the last state. The model then has the habits of its
    lessons, and answers well if it leaves them.
    """

    heads: int = HEADS
    learning_rate: float = 3e-3
    batch_size: int = 64
    check_every: int = 2
    n_check: int = 192
    target: float = 0.5
    steps: int = 0
    max_steps: int = 2000


@dataclass(frozen=True, slots=True)
class WarmStart:
    """The model that was kept, its step, and its greedy accuracy on the checked training problems."""

    model: Any
    steps: int
    accuracy: float


def new_model(seed: int, heads: int = HEADS, vocabulary: int = len(VOCABULARY)) -> Any:
    """Return a fresh model of 2 layers, heads of dimension 32, tied embeddings; 0.2 M parameters with 3 heads."""
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=32 * heads,
        intermediate_size=64 * heads,
        num_hidden_layers=2,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        initializer_range=0.05,
        eos_token_id=VOCABULARY.index(END),
        pad_token_id=VOCABULARY.index(PAD),
        bos_token_id=None,
    )
    with _seeded(seed):
        return Qwen2ForCausalLM(config)


def save_model(model: Any, folder: Path) -> None:
    """Write a Hugging Face checkpoint, without transformers' progress bars among our lines."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        model.save_pretrained(folder)
    finally:
        if shown:
            logging.enable_progress_bar()


def warm_start(
    problems: Sequence[Exercise],
    tokenizer: Any,
    seed: int,
    settings: WarmStartSettings,
    report: Callable[[str], None],
    tools: Sequence[dict[str, Any]] = (),
) -> WarmStart:
    """Train a new model on the chats of lessons until it is about to exceed ``settings.target``, or ``settings.steps``; one thread."""
    data = encode([problem.lesson for problem in problems], tokenizer, tools)
    check = encode([problem.solution for problem in problems[: settings.n_check]], tokenizer, tools)
    model = new_model(seed, settings.heads, len(tokenizer))
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=0.01)
    kept, last = _copy(model), (0, 0.0)
    with _one_thread():
        for step, rows in enumerate(_batches(len(data.ids), settings, seed), start=1):
            if settings.steps:
                optimizer.param_groups[0]["lr"] = settings.learning_rate * (1 - step / (settings.steps + 1))
            _supervised_step(model, optimizer, data.take(rows))
            if step == settings.steps:
                return WarmStart(model, step, greedy_accuracy(model, check))
            if settings.steps or step % settings.check_every:
                continue
            accuracy = greedy_accuracy(model, check)
            if accuracy > settings.target:
                model.load_state_dict(kept)
                return WarmStart(model, *last)
            kept, last = _copy(model), (step, accuracy)
            if step % (25 * settings.check_every) == 0:
                report(f"warm start: step {step}, greedy accuracy on training problems {accuracy:.2f} (stops at {settings.target})")
    raise RunError(
        f"the quickstart's warm start did not reach an accuracy of {settings.target} within {settings.max_steps} steps; try another --seed"
    )


@dataclass(frozen=True, slots=True)
class Encoded:
    """Token ids int64[B, L], right-padded; ``answer`` bool[B, L], True on the tokens of the response and its end token."""

    ids: torch.Tensor
    answer: torch.Tensor

    def take(self, rows: np.ndarray) -> Encoded:
        """Return the given rows."""
        index = torch.from_numpy(rows)
        return Encoded(self.ids[index], self.answer[index])


def encode(chats: Sequence[list[dict[str, Any]]], tokenizer: Any, tools: Sequence[dict[str, Any]] = ()) -> Encoded:
    """Return the chats through the chat template. An answer is what follows the marker of the assistant."""
    given: dict[str, Any] = {"tools": list(tools)} if tools else {}
    texts = [tokenizer.apply_chat_template(chat, tokenize=False, **given) for chat in chats]
    rows = tokenizer(texts, add_special_tokens=False)["input_ids"]
    ids = np.full((len(rows), max(map(len, rows))), VOCABULARY.index(PAD), dtype=np.int64)
    for row, tokens in enumerate(rows):
        ids[row, : len(tokens)] = tokens
    is_answer = np.zeros(ids.shape, dtype=np.bool_)
    for column in range(1, ids.shape[1]):
        before = ids[:, column - 1]
        is_answer[:, column] = (before == VOCABULARY.index(ASSISTANT)) | (is_answer[:, column - 1] & (before != VOCABULARY.index(END)))
    return Encoded(torch.from_numpy(ids), torch.from_numpy(is_answer))


def _batches(count: int, settings: WarmStartSettings, seed: int) -> Iterator[np.ndarray]:
    """Yield row numbers int64[batch_size] of ``max_steps`` batches, in a new order in each pass over the data."""
    rng = np.random.default_rng([seed, 1])
    order = np.empty(0, dtype=np.int64)
    for _ in range(settings.max_steps):
        while len(order) < settings.batch_size:
            order = np.concatenate([order, rng.permutation(count)])
        yield order[: settings.batch_size]
        order = order[settings.batch_size :]


def _supervised_step(model: Any, optimizer: torch.optim.Optimizer, batch: Encoded) -> None:
    logits = model(batch.ids).logits[:, :-1]
    wanted = batch.answer[:, 1:]
    loss = torch.nn.functional.cross_entropy(logits[wanted], batch.ids[:, 1:][wanted])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


@torch.no_grad()
def greedy_accuracy(model: Any, batch: Encoded) -> float:
    """Return the share of problems that greedy decoding answers right, token by token.

    One forward is enough: greedy decoding produces the gold response exactly if every gold token is the most likely one after the gold
    tokens before it. Padding is on the right, which a causal model does not attend to.
    """
    guesses = model(batch.ids).logits[:, :-1].argmax(-1)
    right = (guesses == batch.ids[:, 1:]) | ~batch.answer[:, 1:]
    return float(right.all(dim=1).float().mean())


def _copy(model: Any) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
