"""Endless data: rules of the plan, prompts that are made when they are needed, and what breaks the contract of a generator."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlcore.api.data import BadRow, RowGenerator
from rlcore.config.run_config import DataSection, DataSource, RunConfig
from rlcore.contracts.errors import DataError, PluginError
from rlcore.contracts.specs import DataSourceSpec
from rlcore.data import DataSet, EndlessPrompts, load_prompts, prompt_at, prompt_count
from rlcore.data.endless import FIRST_ROWS
from rlcore.registry.plugin_registry import Registry
from rlcore.testing import RowGeneratorSuite, RunTester
from rlcore.testing.data.fake_data import FakeGenerator


class TestFakeGenerator(RowGeneratorSuite):
    path = "fake-endless:abcdef"
    missing = "fake-endless:"

    def make(self) -> RowGenerator:
        return FakeGenerator()


class Counts(FakeGenerator):
    """Depends on how often it was asked."""

    def __init__(self) -> None:
        self._asked = 0

    def row(self, path: str, number: int, level: int) -> object:
        self._asked += 1
        return super().row(path, self._asked, level)


class HashesTexts(FakeGenerator):
    """Draws by the hash of a text, which differs between processes."""

    def row(self, path: str, number: int, level: int) -> object:
        return super().row(path, hash(f"row {number}") % 1000, level)


class DrawsGlobally(FakeGenerator):
    def row(self, path: str, number: int, level: int) -> object:
        return super().row(path, random.randrange(1000), level)


class SeedsGlobally(FakeGenerator):
    def row(self, path: str, number: int, level: int) -> object:
        random.seed(number)
        return super().row(path, random.randrange(1000), level)


class IgnoresTheNumber(FakeGenerator):
    def row(self, path: str, number: int, level: int) -> object:
        return super().row(path, 0, level)


class IgnoresTheLevel(FakeGenerator):
    def row(self, path: str, number: int, level: int) -> object:
        return super().row(path, number, 0)


class MakesTexts(FakeGenerator):
    def row(self, path: str, number: int, level: int) -> object:
        return "a" if level else super().row(path, number, level)


class HasNoLevel(FakeGenerator):
    def levels(self, path: str) -> int:
        return 0


class HasHalfALevel(FakeGenerator):
    def levels(self, path: str) -> int:
        return 1.5  # type: ignore[return-value]


class BeginsAtTwo(FakeGenerator):
    def rows(self, path: str) -> Iterator[tuple[int, object]]:
        return ((number + 1, row) for number, row in super().rows(path))


class SaysItEnds(FakeGenerator):
    endless = False


class TakesAnything(FakeGenerator):
    @staticmethod
    def _letters(path: str) -> str:
        return path.removeprefix("fake-endless:") or "ab"


@pytest.mark.parametrize(
    ("generator", "rule"),
    [
        (Counts, "test_a_row_depends_on_its_arguments_alone"),
        (DrawsGlobally, "test_a_row_depends_on_its_arguments_alone"),
        (SeedsGlobally, "test_global_random_generators_are_left_alone"),
        (HashesTexts, "test_another_process_makes_the_same_rows"),
        (IgnoresTheNumber, "test_rows_differ"),
        (IgnoresTheLevel, "test_levels_differ"),
        (MakesTexts, "test_every_row_is_taken"),
        (HasNoLevel, "test_levels_are_a_number_from_one"),
        (HasHalfALevel, "test_levels_are_a_number_from_one"),
        (BeginsAtTwo, "test_rows_begin_with_the_first_ones_at_level_0"),
        (SaysItEnds, "test_it_declares_that_it_has_no_end"),
        (TakesAnything, "test_a_path_that_means_nothing_is_refused"),
    ],
)
def test_a_broken_generator_fails(generator: type[RowGenerator], rule: str) -> None:
    class Suite(TestFakeGenerator):
        def make(self) -> RowGenerator:
            return generator()

    with pytest.raises(AssertionError):
        getattr(Suite(), rule)()


def loaded(generator: type, path: str = "fake-endless:abcd", **data: Any) -> DataSet:
    registry = Registry.discover()
    name = registry.add("data", generator)
    config = RunConfig(data=DataSection(dataset=(DataSource(path=path, source=name),), **data))
    return load_prompts(config, (), registry)


def endless(generator: type, path: str = "fake-endless:abcd") -> EndlessPrompts:
    found = loaded(generator, path).endless
    assert found is not None
    return found


def test_a_prompt_has_its_number_its_level_and_its_place() -> None:
    data = loaded(FakeGenerator)
    assert data.endless is not None
    assert (data.endless.levels, len(data), prompt_count(data.endless), prompt_count(data.prompts)) == (2, FIRST_ROWS, None, FIRST_ROWS)
    prompt = prompt_at(data.endless, 1001, 1)
    assert (prompt.index, prompt.prompt_id, prompt.source) == (1001, "fake-endless:abcd:1002@1", "fake-endless:abcd:1002@1")
    assert (prompt.messages[-1].content, prompt.columns["gt_answer"]) == ("d", "d")
    assert prompt_at(data.endless, 1001).prompt_id == "fake-endless:abcd:1002"
    assert [prompt.prompt_id for prompt in data.prompts[:2]] == ["fake-endless:abcd:1", "fake-endless:abcd:2"]
    assert prompt_at(data.prompts, 1, 7) is data.prompts[1]


def test_a_prompt_that_was_made_is_not_made_again() -> None:
    prompts = endless(FakeGenerator)
    assert prompts.at(5, 1) is prompts.at(5, 1)


def test_the_prompts_of_a_source_have_its_number() -> None:
    data = loaded(FakeGenerator)
    second = data.of_source(1)
    assert data.of_source(0) is data
    assert second.endless is not None
    assert (second.endless.levels, second.endless.at(9, 1).source_index, second.prompts[0].source_index) == (2, 1, 1)
    assert replace(second.endless.at(9, 1), source_index=0) == endless(FakeGenerator).at(9, 1)


def test_the_fingerprint_is_that_of_the_first_rows() -> None:
    assert loaded(FakeGenerator).fingerprint == loaded(FakeGenerator).fingerprint
    assert loaded(FakeGenerator, "fake-endless:abcd").fingerprint != loaded(FakeGenerator, "fake-endless:bacd").fingerprint


def test_max_rows_gives_it_an_end() -> None:
    data = loaded(FakeGenerator, max_rows=5)
    assert (data.endless, len(data)) == (None, 5)


class GoesBad(FakeGenerator):
    """Its rows from number 100 on are of no use."""

    def row(self, path: str, number: int, level: int) -> object:
        if number < 100:
            return super().row(path, number, level)
        if level:
            raise BadRow("the level is not ready")
        return [BadRow("no such row"), "a text", {"messages": []}][number % 3] if number < 200 else 1 // 0


@pytest.mark.parametrize(
    ("number", "level", "says"),
    [
        (102, 0, "fake-endless:abcd:103: no such row"),
        (100, 0, "fake-endless:abcd:101: the data source goesbad of .* made text .*'a text'.*, not a mapping; fix the plugin"),
        (101, 0, 'fake-endless:abcd:102: "messages" is an empty list'),
        (100, 1, "fake-endless:abcd:101@1: the level is not ready"),
        (
            200,
            0,
            r"fake-endless:abcd:201: the data source goesbad of .* failed in row\('fake-endless:abcd', 200, 0\) \(ZeroDivisionError: ",
        ),
    ],
)
def test_a_bad_row_is_named_by_its_place(number: int, level: int, says: str) -> None:
    with pytest.raises(DataError, match=f"^{says}"):
        endless(GoesBad).at(number, level)


class FailsAtOnce(FakeGenerator):
    def row(self, path: str, number: int, level: int) -> object:
        raise BadRow("nothing is here")


def test_the_first_rows_are_checked_before_a_run() -> None:
    with pytest.raises(DataError, match=r"^fake-endless:abcd:1: nothing is here"):
        loaded(FailsAtOnce)
    with pytest.raises(DataError, match=r"^fake-endless:: at least two letters"):
        loaded(FakeGenerator, "fake-endless:")
    with pytest.raises(PluginError, match="has 0 levels, it must be a whole number from 1 on"):
        loaded(HasNoLevel)


def test_a_class_without_numbers_cannot_be_endless() -> None:
    registry = Registry.discover()
    spec = DataSourceSpec(name="some", target="rlcore.testing.data.fake_data:FakeRows", summary="", endless=True)
    config = RunConfig(data=DataSection(dataset=(DataSource(path="fake:abc", source=registry.add("data", spec)),)))
    with pytest.raises(
        PluginError, match=r"the data source some of python declares endless, and its class is not an rlcore\.api\.data\.RowGenerator"
    ):
        load_prompts(config, (), registry)


def test_a_spec_that_does_not_say_it_is_refused() -> None:
    registry = Registry.discover()
    registry.add("data", DataSourceSpec(name="some", target="rlcore.testing.data.fake_data:FakeGenerator", summary=""))
    with pytest.raises(PluginError, match="endless is True on its class and False in its spec; they must agree"):
        registry.load("data", "some")


@pytest.mark.parametrize(
    ("sections", "says"),
    [
        (
            {"without": "max_steps = 3\n"},
            "fake-endless:abcd has no end, so the run would have none; type --max-steps 200, or --max-rows 1000",
        ),
        ({"data": {"bad_rows": "drop"}}, "what to drop is not known; type --bad-rows refuse, or --max-rows 1000"),
        ({"data": {"overlong": "drop"}}, "what to drop is not known; type --overlong refuse"),
        ({"data": {"dataset": ["fake-endless:abcd", "fake:ab"]}}, "it can be no part of a list; name it alone"),
        ({"data": {"dataset": [{"path": "fake-endless:abcd", "ratio": 2.0}]}}, "it can be no part of a list"),
        ({"data": {"sampler": "shuffled"}}, "the sampler shuffled draws from data that ends only, and fake-endless:abcd has no end"),
        ({"data": {"sampler": "success_rate"}}, "has no end; type --sampler sequential"),
        ({"eval": {"eval_interval": 2, "eval_dataset": {"far": "fake-endless:ef"}}}, "the evaluation task far: fake-endless:ef has no end"),
    ],
)
def test_settings_that_do_not_fit_are_refused(sections: dict[str, Any], says: str, tmp_path: Path) -> None:
    sections = dict(sections)
    without = sections.pop("without", "")
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    data = {"dataset": "fake-endless:abcd", **sections.pop("data", {})}
    typed = tester.fake_run(data=data, **sections)
    if without:
        text = Path(typed).read_text(encoding="utf-8")
        assert without in text
        Path(typed).write_text(text.replace(without, ""), encoding="utf-8")
    tester.run("train", typed, "--dry-run").assert_refused(says)
    if "eval" not in sections:
        tester.run("train", typed, "--dry-run", "--max-rows", "6").assert_ok()


def test_a_dry_run_refuses_a_sampler_of_data_without_end_for_data_that_ends(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    typed = tester.fake_run(data={"dataset": "fake-endless:abcd", "sampler": "rising_level"})
    tester.run("train", typed, "--dry-run").assert_ok()
    said = "sampler = rising_level", "draws from data without end only, and fake-endless:abcd ends after 9 rows; type --sampler shuffled"
    tester.run("train", typed, "--dry-run", "--max-rows", "9").assert_refused(*said)
    ends = tester.fake_run(data={"dataset": "fake:ab"})
    tester.run("train", ends, "--dry-run", "--sampler", "rising_level").assert_refused("--sampler rising_level", "fake:ab ends; type")


def test_a_dry_run_says_that_it_is_endless_and_checks_the_first_rows(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    told = tester.run("train", tester.fake_run(data={"dataset": "fake-endless:abcd"}), "--dry-run").assert_ok().stdout
    assert "fake-endless:abcd has no end: each prompt is made when it is needed" in told
    refused = tester.run("train", tester.fake_run(data={"dataset": "fake-endless:a"}), "--dry-run")
    refused.assert_refused("fake-endless:a: at least two letters")
