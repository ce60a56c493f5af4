"""Plays tasks of verifiers with a fake engine, and a real process in the environment ``verifiers``."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from episode_player import TOKENS, EpisodePlayer
from rlcore_plugin_verifiers.options import VerifiersOptions
from rlcore_plugin_workers.environments import Interpreters

from rlcore.api import Rollout, Score

__all__ = ["NEEDS_VERIFIERS", "TASKS", "VerifiersPlayer", "read_rows", "rows_of", "write_tokenizer"]

TASKS = Path(__file__).parent / "environment"
NEEDS_VERIFIERS = [
    pytest.mark.full,
    pytest.mark.skipif(
        not os.environ.get("RLCORE_TEST_VERIFIERS"),
        reason="needs the environment of verifiers: rlcore env build verifiers, RLCORE_TEST_VERIFIERS",
    ),
]
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}"
    "{% if message['role'] == 'assistant' %}<|end|>{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


_READ = """
import json, sys
from rlcore.api import DataError
from rlcore_plugin_verifiers.environment import Verifiers

found = {}
for name in sys.argv[1:]:
    try:
        found[name] = list(Verifiers.rows(name))
    except DataError as error:
        found[name] = str(error)
print(json.dumps(found))
"""
_NAMES = (
    "guess_digit.py?count=8",
    "guess_digit.py?split=dev",
    "guess_digit.py?colour=red",
    "nothing.py",
    "endless_tasks.py",
    "endless_tasks.py?select.skip=2&select.limit=3",
    "faulty_tasks.py",
    "faulty_tasks.py?ends=load",
    "faulty_tasks.py?ends=toolsets",
    "two_players.py",
)


def read_rows(*names: str) -> Mapping[str, Any]:
    """Read the rows of tasksets in one process, because it takes a while to import verifiers. A refused one has the text of the error."""
    with closing(Interpreters()) as interpreters:
        python, variables = interpreters.of(Path(os.environ["RLCORE_TEST_VERIFIERS"]))
        words = [python, "-P", "-c", _READ, *names]
        done = subprocess.run(words, env={**os.environ, **variables}, capture_output=True, text=True, check=True)
    found: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@cache
def _read() -> Mapping[str, Any]:
    return read_rows(*(f"{TASKS}/{name}" for name in _NAMES))


def rows_of(name: str) -> Any:
    """The rows of a taskset in the folder of these tests, such as "faulty_tasks.py"; the text of the error if it is refused."""
    return _read()[f"{TASKS}/{name}"]


def write_tokenizer(folder: Path) -> Path:
    """Write the tokenizer of the fake engine as one of Hugging Face, with which verifiers renders."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["<|end|>", "<|unknown|>", "<|system|>", "<|user|>", "<|assistant|>"]
    words = {text: place for place, text in enumerate([*special, *TOKENS])}
    fast = Tokenizer(models.WordLevel(words, unk_token=special[1]))
    fast.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    fast.decoder = decoders.Fuse()
    fast.add_special_tokens(special)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=fast, eos_token=special[0], additional_special_tokens=special)
    wrapped.chat_template = TEMPLATE
    wrapped.save_pretrained(folder)
    return folder


class VerifiersPlayer(EpisodePlayer):
    """An ``EpisodePlayer`` of the environment ``verifiers``.

    :param tokens: the client of verifiers asks by tokens.
    :param given: options of the environment.
    """

    def __init__(self, folder: Path, given: Mapping[str, Any] | None = None, *, tokens: bool = False, **options: Any) -> None:
        renders = (
            {"client": "tokens", "tokenizer": write_tokenizer(folder / "tokenizer"), "renderer": {"name": "default"}} if tokens else {}
        )
        super().__init__(folder, "verifiers", VerifiersOptions(**renders, **(given or {})), **{"workers": 1, **options})

    def step_until(self, done: Callable[[], object], seconds: float = 600.0) -> list[tuple[Rollout, Score]]:
        """See EpisodePlayer. Processes import verifiers first, which takes long on a busy machine."""
        return super().step_until(done, seconds)
