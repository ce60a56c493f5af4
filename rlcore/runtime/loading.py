"""Read the inputs of every process of a run: data, tokenizer and prompts. Errors about damaged files become one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np

from rlcore.config import Plan
from rlcore.config.plan_record import SourcePlan
from rlcore.config.run_config import DataSection
from rlcore.contracts.conversation import rendered
from rlcore.contracts.errors import ConfigError, DataError, RlcoreError
from rlcore.contracts.interfaces import Tokenizer
from rlcore.contracts.specs import InferenceBackendSpec, PluginKind
from rlcore.contracts.types import Prompt
from rlcore.data import (
    DataSet,
    EndlessPrompts,
    Prompts,
    check_prompt_lengths,
    load_eval,
    load_prompts,
    prompt_at,
    prompt_count,
    short_prompts,
    with_system_prompt,
)
from rlcore.data.left_out import by_reason, left_out_sentences
from rlcore.data.tokenizer import ChatTokenizer, load_tokenizer
from rlcore.registry.error_context import SHOW_TRACEBACK, out_of_memory, reason
from rlcore.registry.targets import load_target
from rlcore.runtime.known_data import MANY_ROWS, keep_lengths, known_lengths, lengths_name
from rlcore.runtime.progress import counting

__all__ = [
    "GOLD_ANSWERS",
    "Texts",
    "bad_rows_of",
    "check_template",
    "counting_rows",
    "data_notes",
    "fingerprints",
    "load_data",
    "loading",
    "read_texts",
    "scorable",
    "stop_strings",
]

GOLD_ANSWERS = "checking gold answers"
_LENGTHS = "counting the tokens of prompts"
_PROBE_TOKENS = 64
_TEMPLATE_SETTINGS = ("template", "chat_template", "tools", "control_tokens")
_AT_ONCE = 1000
"""Prompts that are tokenized together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """The tokenizer, and the prompts of each data set (``train``, or ``train/<source>``; ``eval/<task>``) with their system prompt.
    ``prompt_at`` returns one of them, also of an endless data set.

    ``dropped`` counts the prompts of each data set that were too long and are left out."""

    tokenizer: Tokenizer
    prompts: Mapping[str, Prompts]
    dropped: Mapping[str, int] = field(default_factory=dict)

    @property
    def sources(self) -> tuple[Prompts, ...]:
        """The prompts to train on, of each source of the run."""
        return tuple(rows for name, rows in self.prompts.items() if not name.startswith("eval/"))

    @property
    def counts(self) -> tuple[int | None, ...]:
        """The number of prompts to train on, of each source of the run; None if they have no end."""
        return tuple(map(prompt_count, self.sources))

    @property
    def held_out(self) -> dict[str, tuple[Prompt, ...]]:
        """The prompts of each held-out task."""
        found = {name.removeprefix("eval/"): rows for name, rows in self.prompts.items() if name.startswith("eval/")}
        return {name: tuple(rows) for name, rows in found.items() if not isinstance(rows, EndlessPrompts)}  # a plan allows no endless one

    def probe_ids(self) -> np.ndarray | None:
        """Return int32[T]: the sequence for the probe of the first weights, or None if the first prompt is too short."""
        ids = rendered(self.tokenizer, prompt_at(self.sources[0], 0))[:_PROBE_TOKENS]
        return ids if len(ids) > 1 else None


def _silent(line: str) -> None:
    """Say nothing, as a process does beside the driver."""


def load_data(plan: Plan, say: Callable[[str], None] = _silent) -> dict[str, DataSet]:
    """Load ``train``, if training data is named, and the held-out tasks by name. Raises DataError with ``file:line``.

    With ``[[sources]]``, the training data of each is ``train/NAME``, and every prompt has the number of its source.

    Rows that ``plan.unscorable`` names are left out.

    :param say: receives the detected row format and the notes on the data."""
    once = cache(say)  # repeats no sentence, because a file may be read both for training and for an evaluation
    loaded = {name: data for number, part in enumerate(plan.parts) for name, data in _of_source(number, part, once).items()}
    data = {name: loaded[name] for name in sorted(loaded, key=lambda name: name.startswith("eval/"))}
    if plan.unscorable:
        data = {name: scorable(name, data_set, plan.unscorable.get(name, {})) for name, data_set in data.items()}
    for note in () if say is _silent else data_notes(plan, data):
        once(note)
    return data


def _of_source(number: int, source: SourcePlan, say: Callable[[str], None]) -> dict[str, DataSet]:
    """Load the training data of a source, if it names some, and its held-out tasks, by their names in the run."""
    config, registry, specs = source.plan.config, source.plan.registry, source.plan.reward_specs()
    train = {source.data_name("train"): load_prompts(config, specs, registry, say)} if config.data.sources else {}
    tasks = {f"eval/{task}": load_eval(path, specs, registry, config.data, say) for task, path in config.eval.eval_dataset.items()}
    return {name: data.of_source(number) for name, data in {**train, **tasks}.items()}


def counting_rows(say: Callable[[str], None], work: str, data: Sized) -> Callable[[int], None]:
    """Return a function that reports how many rows of a large data set are done."""
    return counting(say, work, len(data) if len(data) >= MANY_ROWS else 0)


def scorable(name: str, data: DataSet, unscorable: Mapping[str, str]) -> DataSet:
    """Return the data set without the rows that no reward can score. Raises DataError if none remains."""
    kept = data.without(unscorable)
    if not kept.prompts:
        place, reason = next((row.place, row.reason) for row in kept.left_out if row.place in unscorable)
        raise DataError(f"{place}: {reason}; no row of {name} can be scored, so --bad-rows drop leaves none")
    return kept


def bad_rows_of(data: Mapping[str, DataSet]) -> dict[str, dict[str, int]]:
    """Return data set -> reason -> number of rows that were left out, without data sets that are complete."""
    return {name: by_reason(data_set.left_out) for name, data_set in data.items() if data_set.left_out}


def data_notes(plan: Plan, data: Mapping[str, DataSet]) -> list[str]:
    """Return a sentence for each data set that rows are left out of, and what plugins note about the prompts."""
    notes: list[str] = []
    for part in plan.parts:
        own = {name.partition("/")[0] if name == part.data_name("train") else name: data_set for name, data_set in data.items()}
        told = {name: data_set.prompts for name, data_set in own.items() if name == "train" or plan.of_data(name) is part.plan}
        notes += [f"{part.label}{note}" for note in plan.registry.check_run(part.plan.config, "rlcore_note_data", data=told)]
    return [*left_out_sentences(bad_rows_of(data), {name: len(data_set) for name, data_set in data.items()}), *notes]


def read_texts(plan: Plan, data: Mapping[str, DataSet], *, checked: bool = False, say: Callable[[str], None] = lambda line: None) -> Texts:
    """Read the tokenizer, and add the system prompt to every prompt.

    Raises ConfigError if part of the model's folder cannot be read. Raises DataError if a prompt is longer than ``-mpt`` and prompts may
    not be dropped.

    :param checked: another process of the run has already rendered every prompt to check its length.
    :param say: receives remarks about the chat template, and how many prompts of a large data set are tokenized."""
    path = plan.config.model.tokenizer_path or plan.config.model.model
    with loading(f"the tokenizer {path}"):
        tokenizer = _tokenizer(plan)
        for remark in tokenizer.remarks() if isinstance(tokenizer, ChatTokenizer) else ():
            say(remark)
    prompts = {name: _with_system_prompts(plan.of_data(name), rows) for name, rows in data.items()}
    endless = {name: _endless(plan.of_data(name), rows.endless, tokenizer) for name, rows in data.items() if rows.endless is not None}
    kept: dict[str, Prompts] = {**prompts, **endless}
    dropped = {}
    with loading(f"the chat template of {path}"):
        for name, rows in prompts.items():
            own = plan.of_data(name)
            most, drop = own.config.data.max_prompt_tokens, own.config.data.overlong == "drop"
            if checked and not drop:
                continue
            lengths = _lengths(own, data[name], tokenizer, rows, say)
            if drop:  # every process that reads the prompts drops the same ones; the plan allows no endless data then
                kept[name] = short = short_prompts(rows, lengths, most, name)
                dropped[name] = len(rows) - len(short)
            else:
                check_prompt_lengths(rows, lengths, most)
    return Texts(tokenizer=tokenizer, prompts=kept, dropped={name: count for name, count in dropped.items() if count})


def _endless(plan: Plan, prompts: EndlessPrompts, tokenizer: Tokenizer) -> EndlessPrompts:
    """Return the prompts with their system prompts. One that is too long is refused when it is made."""
    system_prompt, most = _system_prompts(plan), plan.config.data.max_prompt_tokens

    def make(number: int, level: int) -> Prompt:
        prompt = system_prompt(prompts.at(number, level))
        if (count := _length(tokenizer, prompt)) > most:
            raise DataError(f"{prompt.source}: the prompt is {count} tokens long, {most} are allowed; raise -mpt/--max-prompt-tokens")
        return prompt

    return EndlessPrompts(make, prompts.levels)


def fingerprints(data: Mapping[str, DataSet], tokenizer: Tokenizer) -> dict[str, str]:
    """Return a hash of each data set, by name, and of the ``tokenizer``. They must be equal in all processes of a run."""
    return {**{name: data_set.fingerprint for name, data_set in data.items()}, "tokenizer": tokenizer.fingerprint()}


@contextmanager
def loading(what: str) -> Iterator[None]:
    """Turn a library's exception about a damaged model, tokenizer or template into one sentence, before anything is written."""
    try:
        yield
    except RlcoreError:
        raise
    except Exception as error:
        if out_of_memory(error):
            raise ConfigError(
                f"{what} does not fit into memory ({type(error).__name__}); name a smaller -m, or --training-dtype and --inference-dtype "
                "bfloat16, or end other programs"
            ) from None
        raise ConfigError(
            f"{what} cannot be loaded ({reason(error)}); check the files in the folder, or name another -m; {SHOW_TRACEBACK}"
        ) from error


def _tokenizer(plan: Plan) -> Tokenizer:
    config = plan.config
    path = config.model.tokenizer_path or config.model.model
    spec = plan.registry.spec(PluginKind.INFERENCE, config.inference.name)
    if isinstance(spec, InferenceBackendSpec) and spec.tokenizer:
        _refuse_template(plan, spec.name)
        make = load_target(spec.tokenizer, f"inference backend {spec.name!r}: its tokenizer {spec.tokenizer!r}")
        loaded: Tokenizer = make(path)
        return loaded
    made = load_tokenizer(path, model=config.model.model, trust_remote_code=config.model.trust_remote_code, data=config.data)
    made.stop_at(stop_strings(plan))
    return made


def check_template(plan: Plan) -> None:
    """Raise ConfigError if a setting of the chat template, or a stop string, does not fit a tokenizer that is on this machine.

    With the usual settings nothing is loaded, so that a dry run stays light."""
    data, path = plan.config.data, plan.config.model.tokenizer_path or plan.config.model.model
    asked = any(getattr(data, name) != getattr(DataSection(), name) for name in _TEMPLATE_SETTINGS) or stop_strings(plan)
    if asked and Path(path).is_dir():
        with loading(f"the tokenizer {path}"):
            _tokenizer(plan)


def _refuse_template(plan: Plan, backend: str) -> None:
    """Raise ConfigError if a setting of the chat template would have no effect."""
    for name in _TEMPLATE_SETTINGS:
        if getattr(plan.config.data, name) != getattr(DataSection(), name):
            raise ConfigError(
                f"{plan.cite(f'data.{name}')}: inference backend {backend} has a tokenizer of its own, which has no chat template; "
                "leave it out"
            )


def stop_strings(plan: Plan) -> tuple[str, ...]:
    """Return the strings that end a response: the user's, or those of the rewards."""
    chosen = plan.config.sampling.stop
    return tuple(chosen if chosen is not None else dict.fromkeys(text for spec in plan.reward_specs() for text in spec.stop))


def _with_system_prompts(plan: Plan, data: DataSet) -> tuple[Prompt, ...]:
    return tuple(map(_system_prompts(plan), data.prompts))


def _system_prompts(plan: Plan) -> Callable[[Prompt], Prompt]:
    """Return a function that adds the system prompt to a prompt."""
    specs = {spec.name: spec for spec in reversed(plan.reward_specs())}
    default, chosen = plan.reward_specs()[0], plan.config.data.system_prompt

    def added(prompt: Prompt) -> Prompt:
        own = chosen if chosen is not None else specs.get(prompt.reward or "", default).system_prompt
        return replace(prompt, messages=with_system_prompt(prompt.messages, own))

    return added


def _lengths(plan: Plan, data: DataSet, tokenizer: Tokenizer, prompts: Sequence[Prompt], say: Callable[[str], None]) -> list[int]:
    """Return the number of tokens of each rendered prompt. If the tokenizer refuses one, the error names the prompt's place."""
    name = lengths_name(plan, data, tokenizer)
    if (lengths := known_lengths(name, len(prompts))) is not None:
        return lengths
    lengths, told = [], counting_rows(say, _LENGTHS, prompts)
    for start in range(0, len(prompts), _AT_ONCE):
        lengths += _lengths_of(tokenizer, prompts[start : start + _AT_ONCE])
        told(len(lengths))
    keep_lengths(name, lengths)
    return lengths


def _lengths_of(tokenizer: Tokenizer, prompts: Sequence[Prompt]) -> list[int]:
    if isinstance(tokenizer, ChatTokenizer) and len(prompts) > 1:
        try:
            return tokenizer.lengths(prompts)
        except (ConfigError, DataError):  # of one prompt, which is found below
            pass
    return [_length(tokenizer, prompt) for prompt in prompts]


def _length(tokenizer: Tokenizer, prompt: Prompt) -> int:
    try:
        return len(rendered(tokenizer, prompt))
    except (ConfigError, DataError) as error:
        raise type(error)(f"{prompt.source}: {error}") from error
