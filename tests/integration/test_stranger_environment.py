"""A stranger's environment: it keeps the rules, is chosen by name or flag, takes options, and trains."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from rlcore_plugin_tools.run_record import RunRecord

from rlcore.testing import EnvironmentSuite, PluginFolder, RunTester, write_fake_model
from tests.stranger_site import link_stranger, stranger_site

ROW = {"prices": {"apple": 3, "pear": 5}, "item": "pear", "number": 2}
PRICE = '{"name": "price", "arguments": {"item": "pear"}}'


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stranger_site(tmp_path_factory)


class TestShop(EnvironmentSuite):
    environment = "acme_shop"
    options: Mapping[str, Any] = {"fee": 0.25}
    rows = (ROW,)
    scripts = ((PRICE, "10"), ("11",), (PRICE.replace("pear", "plum"), PRICE, "10"))
    rewards = (0.75, 0.0, 0.5)

    @pytest.fixture(autouse=True)
    def _installed(self, tmp_path: Path, site: Path) -> Iterator[None]:
        with PluginFolder(tmp_path / "plugins") as plugins:
            link_stranger(site, plugins)
            yield


def a_shop(folder: Path, site: Path, **sampling: Any) -> tuple[RunTester, str]:
    tester = RunTester(folder, in_process=True).with_fakes()
    link_stranger(site, tester.plugins)
    write_fake_model(folder / "model", ' abcdefghijklmnopqrstuvwxyz0123456789W?{}":,')
    rows = [{"messages": [{"role": "user", "content": "?"}], "gt_answer": "10", **ROW}] * 4
    config: dict[str, Any] = {
        "model": {"model": str(folder / "model")},
        "data": {"dataset": str(tester.write_jsonl("shop.jsonl", rows))},
        "eval": {"eval_dataset": {}},
        "run": {"max_steps": 1},
        "sampling": {"num_generations": 2, "max_new_tokens": 16, "environment": "acme_shop", **sampling},
        "training": {"name": "fake", "train_batch_size": 4},
    }
    return tester, tester.fake_run(**config)


def test_it_trains_and_what_was_said_is_logged(tmp_path: Path, site: Path) -> None:
    tester, path = a_shop(tmp_path, site, options={"tool_parser": "json"})
    folder = tester.folder / tester.run("train", path, "-rt", "environment", "--json").assert_ok().json["run"]
    rows = list(RunRecord(folder).rollouts(1))
    assert {row["turns"][0]["content"] for row in rows} == {"What do 2 pear cost?"}
    assert {row["reward"] for row in rows} == {0.0}
    plugins = {(one["kind"], one["name"]): one["distribution"] for one in json.loads((folder / "manifest.json").read_text())["plugins"]}
    assert plugins["environment", "acme_shop"] == "acme-rlcore"


def test_its_options_are_checked(tmp_path: Path, site: Path) -> None:
    tester, path = a_shop(tmp_path, site, environment_options={"fee": -1})
    tester.run("train", path, "-rt", "environment").assert_refused("fee = -1", "at least 0", "environment acme_shop of acme-rlcore")
    planned = tester.run("train", path, "-rt", "environment", "--fee", "0.5", "--dry-run", "--json").assert_ok().json
    assert planned["config"]["sampling"]["environment_options"]["fee"] == 0.5


def test_it_trains_on_its_own_rows(tmp_path: Path, site: Path) -> None:
    tester, path = a_shop(tmp_path, site, options={"tool_parser": "json"})
    done = tester.run("train", path, "-rt", "environment", "-d", "env:acme_shop:4", "--json").assert_ok()
    rows = list(RunRecord(tester.folder / done.json["run"]).rollouts(1))
    assert {row["turns"][0]["content"] for row in rows} <= {f"What do {number} apple cost?" for number in range(1, 5)}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("env:acme_shop:many", ["acme_shop: 'many' must be a number, such as env:acme_shop:3"]),
        ("env:acme_shelf:3", ["no installed plugin has an environment 'acme_shelf'", "acme_shop"]),
        ("env:", ["env:ENVIRONMENT:NAME"]),
        ("env:program:3", ["has no rows of its own"]),
    ],
)
def test_rows_that_it_does_not_have_are_refused(tmp_path: Path, site: Path, name: str, said: list[str]) -> None:
    tester, path = a_shop(tmp_path, site)
    tester.run("train", path, "-rt", "environment", "-d", name).assert_refused(*said)
