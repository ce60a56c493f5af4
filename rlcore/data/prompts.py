"""What a run asks of its data: load the training prompts or an evaluation task, put a system prompt in front, bound the length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.data.dataset import DataSet, collect, resized
from rlcore.data.jsonl import read_jsonl
from rlcore.data.rows import Routes
from rlcore.data.tables import HUB_PREFIX, read_hub, read_parquet, read_saved
from rlcore.errors import DataError
from rlcore.specs import RewardSpec
from rlcore.types import Message, Prompt

if TYPE_CHECKING:
    from rlcore.config import RunConfig

__all__ = ["check_prompt_lengths", "load_eval", "load_prompts", "with_system_prompt"]


def load_prompts(config: RunConfig, reward_specs: Sequence[RewardSpec]) -> DataSet:
    """The training prompts of a run: one data set, or several one after the other, each as many times as its ratio says.

    Every row is checked before anything is returned. ``DataError``: one sentence with ``file:line`` of the first bad row.
    """
    sources = config.data.sources
    if not sources:
        raise DataError("no training data is named; name at least one file with -d/--dataset")
    stems = _stems([source.path for source in sources])
    routes = Routes(tuple(reward_specs))
    prompts: list[Prompt] = []
    for source, stem in zip(sources, stems, strict=True):
        prompts += resized(collect(_read(source.path), name=source.path, stem=stem, routes=routes), source.ratio)
    return DataSet.made_of(prompts)


def load_eval(path: str | Path, reward_specs: Sequence[RewardSpec]) -> DataSet:
    """One evaluation task; the same formats and rules as for training."""
    name = str(path)
    return DataSet.made_of(collect(_read(name), name=name, stem=_stem(name), routes=Routes(tuple(reward_specs))))


def with_system_prompt(messages: Sequence[Message], system_prompt: str | None) -> tuple[Message, ...]:
    """The messages with a system prompt in front, unless there is none to add ("" or None) or the row brings its own."""
    if not system_prompt or any(message.role == "system" for message in messages):
        return tuple(messages)
    return (Message(role="system", content=system_prompt), *messages)


def check_prompt_lengths(prompts: Sequence[Prompt], token_counts: Sequence[int], max_prompt_tokens: int) -> None:
    """``DataError`` where a rendered prompt has more tokens than ``max_prompt_tokens`` allows: nothing is cut or dropped silently."""
    long = [(prompt, count) for prompt, count in zip(prompts, token_counts, strict=True) if count > max_prompt_tokens]
    if not long:
        return
    (prompt, count), longest = long[0], max(count for _, count in long)
    more = f" (and so are {len(long) - 1} more)" if len(long) > 1 else ""
    raise DataError(
        f"{prompt.source}: the prompt is {count} tokens long, {max_prompt_tokens} are allowed{more}; "
        f"remove long rows, or raise -mpt/--max-prompt-tokens to {longest}"
    )


def _stem(name: str) -> str:
    return name if name.startswith(HUB_PREFIX) else Path(name).stem


def _stems(names: Sequence[str]) -> list[str]:
    """What default ids begin with: the file's stem, or the path where two files have one stem."""
    stems = [_stem(name) for name in names]
    return [name if stems.count(stem) > 1 else stem for name, stem in zip(names, stems, strict=True)]


def _read(name: str) -> Iterator[tuple[int, object]]:
    if name.startswith(HUB_PREFIX):
        return read_hub(name)
    path = Path(name)
    if path.is_dir():
        return read_saved(path, name)
    if not path.exists():
        raise DataError(f"{name}: no such data file; check the path given with -d/--dataset or -ed/--eval-dataset")
    if path.suffix == ".parquet":
        return read_parquet(path, name)
    return read_jsonl(path, name)
