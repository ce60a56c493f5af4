"""Messages for Python name arguments; commands to type in a shell keep their flags."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlcore.config.python_words import in_python, python_errors
from rlcore.contracts.errors import ConfigError


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("type -m and the folder", "pass model=… and the folder"),
        ("type -tmbs 4", "pass train_microbatch_size=4"),
        ("type -zero 2.", "pass zero_stage=2."),
        ("-topp 1 or 0.9", "top_p=1 or 0.9"),
        ("type -rt boxed", 'pass reward="boxed"'),
        ("type -a dapo, or -b vllm", 'pass algorithm="dapo", or backend="vllm"'),
        ("--bad-rows drop leaves them out", 'bad_rows="drop" leaves them out'),
        ("--max-rows bounds them", "max_rows=… bounds them"),
        ("--max-rows N", "max_rows=N"),
        ("type --no-shuffle", "pass shuffle=False"),
        ("type --dynamic-batching", "pass dynamic_batching=True"),
        ("type --training-dtype bfloat16", 'pass **{"training.dtype": "bfloat16"}'),
        ("""type --columns '{"messages": "q"}'""", 'pass columns={"messages": "q"}'),
        ("type rlcore train -m X; or -m Y", 'type rlcore train -m X; or model="Y"'),
        ("type --step 7 or --best", "step=7 or best=True"),
        ("a well-known -x and 3 - 4", "a well-known -x and 3 - 4"),
        ("/r/a.jsonl:3: bad, /r/a.jsonl has 4", "dataset[2]: bad, dataset has 4"),
    ],
)
def test_a_flag_becomes_an_argument(said: str, wanted: str) -> None:
    assert in_python(said, {Path("/r/a.jsonl"): "dataset"}) == wanted


def test_only_the_text_of_an_error_changes() -> None:
    error = ConfigError("type -lr 1")
    with pytest.raises(ConfigError, match=r"^pass learning_rate=1$") as raised, python_errors({}):
        raise error
    assert raised.value is error
