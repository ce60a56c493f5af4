"""docs/how_to/sources.md is run: its two sources, exactly as printed, on the fakes of the kit."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

from rlcore.config.run_config import AlgorithmSection, DataSection, EvalSection, SamplingSection
from rlcore.config.section import of_a_source
from rlcore.testing import RunTester

PAGE = (Path(__file__).parents[2] / "docs" / "how_to" / "sources.md").read_text(encoding="utf-8")
SECTIONS = {"data": DataSection, "sampling": SamplingSection, "algorithm": AlgorithmSection, "eval": EvalSection}


def test_the_two_sources_train(tmp_path: Path) -> None:
    found = re.search(r"<!-- test: sources -->\n```toml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    run = tomllib.loads(Path(tester.fake_run()).read_text(encoding="utf-8"))
    for name in ("math", "talk", "math-heldout"):
        tester.fake_data(f"{name}.jsonl")
    del run["rewards"], run["data"], run["training"]["train_batch_size"]
    tester.write_toml("base.toml", run)
    tester.write("page.toml", found[1])
    done = tester.run("train", "base.toml", "page.toml", "--json").assert_ok().json
    rows = (tmp_path / done["run"] / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    updates = [row for row in map(json.loads, rows) if "loss" in row]
    assert {(row["source/math/share"], row["source/talk/share"]) for row in updates} == {(8 / 12, 4 / 12)}
    assert {row["rollouts_in_loss"] for row in updates} == {8 * 8 + 4 * 4}


def test_the_table_names_every_setting_that_a_source_cannot_have() -> None:
    for name, section in SECTIONS.items():
        (row,) = re.findall(rf"^\| `\[sources\.{name}\]` \| all except (.*?)(?:;.*)? \|$", PAGE, re.MULTILINE)
        assert set(re.findall(r"`(\w+)`", row)) == {key for key in section.model_fields if not of_a_source(f"{name}.{key}")}
