"""Every case of ``corpus.toml``: exit code 2, one sentence on standard error, nothing written."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from rlcore.testing import RunTester

CASES: list[dict[str, Any]] = tomllib.loads((Path(__file__).parent / "corpus.toml").read_text(encoding="utf-8"))["case"]

PLAIN_BACKEND = """
from rlcore.api import InferenceBackendSpec, hookimpl
rlcore_api = "2.0"

@hookimpl
def rlcore_register_inference_backends():
    target = "rlcore.testing.inference.fake_inference:FakeInference"
    return [InferenceBackendSpec(name="plain", target=target, summary="Reads Hugging Face checkpoints.")]
"""


def test_the_corpus_is_large_and_its_names_differ() -> None:
    assert len(CASES) >= 40
    assert len({case["id"] for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_bad_input_is_refused_in_one_sentence(case: dict[str, Any], tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.plugins.install("plain", PLAIN_BACKEND)
    tester.fake_run()
    if "only" in case:
        tester.with_only(*case["only"])
    for folder in case.get("folders", ()):
        (tmp_path / folder).mkdir()
    for name, text in case.get("files", {}).items():
        tester.write(name, text)
    for name, text in case.get("latin1", {}).items():
        (tmp_path / name).write_bytes(text.encode("latin-1"))
    before = listing(tmp_path)

    outcome = tester.run(*[word.replace("{RUN}", "run.toml") for word in case["argv"]])

    outcome.assert_refused("error: ", *case["says"])
    assert "Traceback" not in outcome.stderr
    assert listing(tmp_path) == before


def listing(folder: Path) -> list[str]:
    """Everything in the folder, also empty folders; what Python caches of imported files aside."""
    return sorted(str(path) for path in folder.rglob("*") if "__pycache__" not in path.parts)


def test_the_test_sees_a_run_that_is_not_refused(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.fake_run()
    tester.run("train", "run.toml", "--dry-run").assert_ok()
