"""transformers 5 of the driver and 4.51 of ColossalAI read the same model from one folder. `make test-colossalai` builds the environment
and names it in RLCORE_TEST_COLOSSALAI; without that the tests that need it are skipped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rlcore_plugin_colossalai.model_configuration import for_transformers_4
from rlcore_plugin_workers.environments import Interpreters
from transformers import AutoConfig

from rlcore.api import ConfigError

ENVIRONMENT = os.environ.get("RLCORE_TEST_COLOSSALAI", "")
needs_environment = pytest.mark.skipif(not ENVIRONMENT, reason="needs the environment of ColossalAI: make test-colossalai")
PROGRAM = Path(__file__).with_name("tiny_models.py")
SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
ROPES: dict[str, dict[str, Any]] = {
    "theta": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0},
    "yarn-original": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
    "yarn-ratio": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32, "beta_fast": 16, "attention_factor": 1.2},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "longrope": {"rope_type": "longrope", "factor": 4.0, "short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [1.5, 2.0, 2.5, 3.0]},
}
# Of mixtral 4.51 takes 1e6 if nothing is said.
ROTARY: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "mistral": {},
    "mixtral": {"num_local_experts": 4, "theta": 2e6},
    "cohere": {},
    "falcon": {},
}
CASES: dict[str, dict[str, Any]] = {
    **{f"llama-{rope}": {"model_type": "llama", "rope": rope} for rope in ROPES},
    **{f"qwen2-{rope}": {"model_type": "qwen2", "rope": rope} for rope in ROPES},
    **{f"{kind}-{tied}": {"model_type": kind, "rope": "theta", "tie_word_embeddings": tied} for kind in ROTARY for tied in (True, False)},
    "llama-llama3-tied": {"model_type": "llama", "rope": "llama3", "tie_word_embeddings": True},
    "llama-heads": {"model_type": "llama", "rope": "theta", "head_dim": 12, "attention_bias": True},
    "mistral-window": {"model_type": "mistral", "rope": "theta", "sliding_window": 16},
    "qwen2-window-off": {"model_type": "qwen2", "rope": "theta", "sliding_window": 16, "use_sliding_window": False},
    **{
        f"{kind}-{tied}": {
            "model_type": kind,
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 4,
            "max_position_embeddings": 256,
            **more,
            "tie_word_embeddings": tied,
        }
        for kind, more in {"gpt2": {}, "gptj": {"rotary_dim": 4}}.items()
        for tied in (True, False)
    },
    "bloom": {"model_type": "bloom", "n_layer": 2, "n_head": 4},
    "opt": {"model_type": "opt", "ffn_dim": 48, "word_embed_proj_dim": 32, "max_position_embeddings": 256},
}
NO_ROTARY = ("gpt2", "gptj", "bloom", "opt")
DIFFERENT = {"llama-yarn-original", "qwen2-yarn-original", "qwen2-window-off"}
"""yarn whose factor is not the ratio of the lengths; a window that is switched off, which 4.51 masks by."""


def settings(case: Mapping[str, Any], version: int) -> dict[str, Any]:
    """Of a case, in the words of this version of transformers."""
    told = {**SIZES, **ROTARY.get(case["model_type"], {}), **case}
    rope, theta = ROPES.get(told.pop("rope", "")), told.pop("theta", 1e6)
    if rope is None:
        return told
    if version == 5:
        return {**told, "rope_parameters": {**rope, "rope_theta": theta}}
    return {**told, "rope_theta": theta, "rope_scaling": None if rope["rope_type"] == "default" else rope}


def call(python: str, variables: Mapping[str, str], *words: object, given: object = None) -> Any:
    done = subprocess.run(
        [python, str(PROGRAM), *map(str, words)],
        input=json.dumps(given),
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout) if done.stdout.strip() else None


def here(*words: object, given: object = None) -> Any:
    return call(sys.executable, {}, *words, given=given)


@pytest.fixture(scope="module")
def there() -> Iterator[Any]:
    """``here`` in the environment of ColossalAI."""
    interpreters = Interpreters()
    python, variables = interpreters.of(Path(ENVIRONMENT))
    yield lambda *words, given=None: call(python, variables, *words, given=given)
    interpreters.close()


Read = dict[str, dict[str, np.ndarray]]
"""Case -> who read it, and how -> log probabilities."""


def read_everywhere(folder: Path, names: list[str], there: Any) -> Read:
    folders = [folder / name for name in names]
    read = {
        "driver": here("compute", "plain", *folders),
        "translated": there("compute", "translated", *folders),
        "plain": there("compute", "plain", *folders),
    }
    return {name: {how: np.array(values[str(folder / name)]) for how, values in read.items()} for name in names}


@pytest.fixture(scope="module")
def by_five(tmp_path_factory: pytest.TempPathFactory, there: Any) -> Read:
    folder = tmp_path_factory.mktemp("five")
    here("make", folder, given={name: settings(case, 5) for name, case in CASES.items()})
    return read_everywhere(folder, list(CASES), there)


@pytest.fixture(scope="module")
def by_four(tmp_path_factory: pytest.TempPathFactory, there: Any) -> Read:
    folder = tmp_path_factory.mktemp("four")
    there("make", folder, given={name: settings(case, 4) for name, case in CASES.items()})
    return read_everywhere(folder, list(CASES), there)


def gap(read: Mapping[str, np.ndarray], how: str) -> float:
    """To what the driver computes, in nats."""
    return float(np.abs(read[how] - read["driver"]).max())


@needs_environment
@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_what_five_writes_is_the_same_model_there(by_five: Read, name: str) -> None:
    assert gap(by_five[name], "translated") < 1e-5


@needs_environment
@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith(NO_ROTARY)])
def test_without_the_translation_it_is_silently_another_one(by_five: Read, name: str) -> None:
    assert gap(by_five[name], "plain") > 1e-3


@needs_environment
@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_what_four_writes_is_read_by_five_as_it_stands(by_four: Read, name: str) -> None:
    """But for what both know and compute differently: there the translation reads it as 5 does."""
    assert gap(by_four[name], "translated") < 1e-5
    assert (gap(by_four[name], "plain") < 1e-5) is (name not in DIFFERENT)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"layer_types": ["full_attention", "sliding_attention"]}, r"layers of several kinds \(full_attention, sliding_attention\)"),
        ({"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1, "num_hidden_layers": 2}, "layers of several kinds .*"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "rotary embeddings that differ by layer"),
        ({"rope_parameters": {"rope_type": "proportional"}}, "rope_type 'proportional'"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "truncate": False}}, "a yarn whose range is not truncated"),
    ],
)
def test_what_four_cannot_compute_is_refused_with_what_to_do(config: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=rf"^m/config.json has {said}, which transformers 4.51 .*; name another -m, or train with"):
        for_transformers_4({"model_type": "llama", "max_position_embeddings": 64, **config}, "m/config.json")


@pytest.mark.parametrize("kind", [*ROTARY])
@pytest.mark.parametrize("file", [{}, {"rope_parameters": {"rope_type": "default"}}])
def test_a_file_without_a_base_means_the_one_of_transformers_5(kind: str, file: dict[str, Any]) -> None:
    default = 1e6 if kind == "mixtral" else 1e4  # of 4.51
    told = for_transformers_4({"model_type": kind, "num_hidden_layers": 2, **file}, "config.json")
    assert told.get("rope_theta", default) == AutoConfig.for_model(kind).rope_parameters["rope_theta"]
