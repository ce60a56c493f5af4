"""The table of metrics in the docs is that of the code, and every figure that runs write stands in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from rlcore_plugin_tools.run_record import RunRecord

from rlcore.api.runs import metric_of
from rlcore.contracts.metric_names import METRICS
from rlcore.testing import RunTester
from tools import metric_table


def test_the_page_is_fresh() -> None:
    page = metric_table.PAGE.read_text(encoding="utf-8")
    assert page == metric_table.with_metrics(page), "docs/reference/metrics.md is stale: type .venv/bin/python -m tools.metric_table"
    assert "| `reward/mean` |" in page


def test_every_section_begins_with_a_metric() -> None:
    assert set(metric_table.SECTIONS) <= {metric.name for metric in METRICS}


def test_a_page_without_the_marks_is_an_error() -> None:
    with pytest.raises(ValueError, match="lacks"):
        metric_table.with_metrics("no marks")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("reward/mean", "reward/mean"),
        ("reward/part/math/format", "reward/part/<name>"),
        ("eval/aime", "eval/<task>"),
        ("eval/aime/high", "eval/<task>/<bound>"),
        ("eval/aime/pass@16/low", "eval/<task>/pass@<k>/<bound>"),
        ("eval/aime/maj@4", "eval/<task>/maj@<k>"),
        ("eval/aime/reward", "eval/<task>/reward"),
        ("response_length/p90", "response_length/<percentile>"),
        ("response_length/mean", "response_length/mean"),
        ("time/trainer/compute", "time/trainer/<category>"),
        ("source/math/share", "source/<source>/share"),
        ("source/math/kl_old", "source/<source>/<figure>"),
        ("source/math/loss/clip_low", "source/<source>/loss/<name>"),
        ("reward/mien", None),
        ("mine", None),
    ],
)
def test_a_name_is_found_by_its_pattern(name: str, found: str | None) -> None:
    metric = metric_of(name)
    assert (metric.name if metric else None) == found


def test_names_are_there_once() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_every_figure_of_a_run_is_in_the_table(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    config = tester.fake_run(
        eval={"eval_dataset": {"letters": str(tester.fake_data("held.jsonl", "abcd"))}, "eval_interval": 1, "eval_samples": 3},
        algorithm={"filter_range": [0.01, 0.99], "kl_coeff": 0.01},
        sampling={"oversampling": 1},
    )
    record = RunRecord(tmp_path / tester.run("train", config, "--json").assert_ok().json["run"])
    written = {name for row in (*record.updates(), *record.evaluations()) for name in row}
    assert not [name for name in written if metric_of(name) is None]
    assert {"eval/letters/pass@2", "reward/part/fake", "groups/zero_spread", "tokens_per_second"} <= written
