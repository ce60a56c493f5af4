"""``log.export_dtype``: a rounded model beside that of each checkpoint, whole and verified like all else."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rlcore.testing.fake_plugin import PIPELINE_TRAINING
from rlcore.testing.run_tester import RunTester


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    return RunTester(tmp_path, in_process=True).with_fakes()


def test_each_checkpoint_has_an_export_whose_bits_are_compared_before_it_is_used(tester: RunTester) -> None:
    config = tester.fake_run(log={"save_interval": 1, "export_dtype": "float16"})
    done = tester.run("train", config, "--json").assert_ok()
    checkpoint = tester.folder / done.json["checkpoint"]
    export, model = checkpoint / "export", checkpoint / "model"
    assert sorted(path.name for path in export.iterdir()) == sorted(path.name for path in model.iterdir())
    known = json.loads((checkpoint / "checkpoint.json").read_text())["files"]
    assert {f"export/{path.name}" for path in export.iterdir()} <= set(known)
    (rounded,) = export.glob("*.npz")
    with np.load(rounded) as small, np.load(model / rounded.name) as whole:
        for name in whole:
            assert (small[name].dtype, whole[name].dtype) == (np.float16, np.float32)
            assert np.array_equal(small[name], whole[name].astype(np.float16))
    fresh = ("train", config, "-m", str(export), "--run-dir", "others")
    tester.run(*fresh).assert_ok()
    data = bytearray(rounded.read_bytes())
    data[-40] ^= 1
    rounded.write_bytes(data)
    tester.run(*fresh).assert_refused(f"step-3/export/{rounded.name} has changed since it was saved")


def test_an_export_is_no_other_run_and_only_what_the_backend_can_write(tester: RunTester) -> None:
    command = ("train", tester.fake_run(), "--resume", "auto")
    tester.run(*command).assert_ok()
    assert "is finished, after 3 updates" in tester.run(*command, "--export-dtype", "float16").assert_ok().stdout
    refused = tester.run(*command, "--export-dtype", "bfloat16")
    refused.assert_refused("--export-dtype bfloat16: training backend fake does not write it", "type --export-dtype float16 or none")
    assert not PIPELINE_TRAINING.exports
    pipeline = tester.fake_run(training={"name": "fake-pipeline"}, log={"export_dtype": "float16"})
    other = tester.run("train", pipeline)
    other.assert_refused("training backend fake-pipeline does not write it (capabilities.exports); type --export-dtype none")
