"""What the plugin says without the package verifiers: its declaration, its options and its lock."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from rlcore_plugin_verifiers import rlcore_register_environments
from rlcore_plugin_verifiers.options import VerifiersOptions
from rlcore_plugin_workers.environment_locks import named_lock


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    (tmp_path / "tokenizer_config.json").write_text("{}")
    return tmp_path


def test_it_runs_in_the_environment_of_its_lock() -> None:
    (spec,) = rlcore_register_environments()
    assert (spec.name, spec.environment, spec.episodes_per_process) == ("verifiers", "verifiers", 64)
    lock = named_lock("verifiers")
    assert lock.owner == "rlcore-plugin-verifiers"
    assert lock.cost is not None


def test_the_lock_has_what_rlcore_imports_and_no_torch() -> None:
    locked = {requirement.partition("==")[0].lower().replace("_", "-") for requirement in named_lock("verifiers").requirements}
    needed = {re.split(r"[^\w.-]", text)[0].replace("_", "-") for text in distribution("rlcore").requires or () if "extra ==" not in text}
    assert needed - locked == set()
    assert {"verifiers", "openai"} <= locked
    assert "torch" not in locked


@pytest.mark.interpreter
def test_entry_module_and_options_import_nothing_of_the_package() -> None:
    code = (
        "import sys, rlcore_plugin_verifiers, rlcore_plugin_verifiers.options\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'verifiers', 'openai', 'httpx', 'transformers', 'torch'}))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_options_of_a_renderer_are_accepted(tokenizer: Path) -> None:
    options = VerifiersOptions(client="tokens", tokenizer=tokenizer, renderer={"name": "qwen3", "thinking_retention": "all"})
    assert options.tokenizer == tokenizer


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"client": "tokens"}, "client tokens needs the tokenizer of the model; type --tokenizer with its folder"),
        ({"client": "tokens", "tokenizer": "nowhere"}, "has no tokenizer_config.json; name the folder of the model"),
        ({"renderer": {"name": "qwen3"}}, "tokenizer and renderer belong to client tokens; type --client tokens, or leave them out"),
        ({"env_options": {"taskset": {"id": "x"}}}, "taskset is not set here; name the taskset in -d env:verifiers:NAME"),
        ({"client": "words"}, "'chat' or 'tokens'"),
        ({"harness": "null"}, "Extra inputs are not permitted"),
    ],
)
def test_wrong_options_are_refused_with_a_sentence(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(said)):
        VerifiersOptions(**given)
