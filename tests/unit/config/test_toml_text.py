"""A configuration written as TOML loads back equal, whatever is in it."""

from __future__ import annotations

import tomllib
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rlcore.config import RunConfig, to_toml

TEXT = st.text(min_size=1, max_size=8).filter(lambda text: text != "none")
PATH = TEXT.filter(lambda text: not text.startswith(("~", ".")))
"""A path that is the same from everywhere: others are written absolute, see test_file_paths.py."""
COUNT = st.integers(1, 2**40)
SHARE = st.floats(0, 1)
POSITIVE = st.floats(1e-12, 1e12)
AUTO = COUNT | st.just("auto")
OPTIONS = st.dictionaries(TEXT, st.integers(-9, 9) | SHARE | st.booleans() | TEXT | st.lists(TEXT, max_size=2), max_size=2)


def section(**values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=values)


CONFIGS = section(
    run=section(project=TEXT, seed=st.integers(0, 2**60), max_steps=st.none() | COUNT, master_port=st.none() | st.integers(1, 65535)),
    model=section(model=PATH, tokenizer_path=st.none() | PATH),
    data=section(
        dataset=PATH | st.lists(PATH | st.fixed_dictionaries({"path": PATH, "ratio": st.floats(1e-9, 1000.0)}), max_size=3),
        system_prompt=st.none() | st.text(max_size=20),
        shuffle=st.booleans(),
    ),
    sampling=section(stop=st.none() | st.lists(TEXT, max_size=2), temperature=POSITIVE, top_k=st.integers(0, 99)),
    training=section(
        train_minibatch_size=AUTO, betas=st.tuples(st.floats(0, 0.99), st.floats(0, 0.99)), learning_rate=POSITIVE, options=OPTIONS
    ),
    algorithm=section(filter_range=st.none() | st.tuples(SHARE, SHARE), skip_threshold=st.none() | st.floats(1.01, 1e6), options=OPTIONS),
    rewards=st.lists(st.fixed_dictionaries({"name": TEXT, "weight": st.floats(-9, 9), "options": OPTIONS}), max_size=2),
    eval=section(eval_dataset=st.dictionaries(TEXT, PATH, max_size=2)),
    log=section(trackers=st.lists(TEXT, max_size=2)),
)


@settings(max_examples=60, deadline=None)
@given(CONFIGS)
def test_what_is_written_loads_back_equal(values: dict[str, Any]) -> None:
    config = RunConfig.model_validate(values)
    assert RunConfig.model_validate(tomllib.loads(to_toml(config))) == config


def test_none_is_left_out_unless_it_must_be_said() -> None:
    config = RunConfig()
    assert "filter_range" not in tomllib.loads(to_toml(config))["algorithm"]
    assert tomllib.loads(to_toml(config, ["algorithm.filter_range"]))["algorithm"]["filter_range"] == "none"
