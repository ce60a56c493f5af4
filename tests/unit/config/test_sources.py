"""Runs with ``[[sources]]``: the plan of each source, what the whole run decides, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlcore.config import Plan, TypedFlag, plan_run
from rlcore.config.layers import get_path
from rlcore.config.resume_rules import changed_settings, check_resumable, settings_of
from rlcore.config.run_config import RunConfig
from rlcore.config.section import of_a_source
from rlcore.contracts.errors import ConfigError, PluginError
from rlcore.registry.plugin_registry import Registry
from rlcore.rewards.reward_entry import routed_entries
from rlcore.testing.run_tester import RunTester

RUN = """
[model]
model = "model"
[inference]
name = "fake"
[training]
name = "fake"
train_batch_size = 4
[schedule]
max_staleness = 0
[algorithm]
name = "fake"
[sampling]
max_new_tokens = 3
"""
ONE = """
[[sources]]
name = "one"
weight = 2
[sources.data]
dataset = "one.jsonl"
[[sources.rewards]]
name = "fake"
"""
TWO = """
[[sources]]
name = "two"
data.dataset = "two.jsonl"
sampling.num_generations = 4
algorithm.kl_coeff = 0.5
rewards = [{name = "fake", weight = 0.5}]
eval.eval_dataset = {held = "two.jsonl"}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    tester = RunTester(tmp_path).with_fakes()
    tester.fake_run()
    tester.fake_data("one.jsonl")
    tester.fake_data("two.jsonl", "abc")
    monkeypatch.chdir(tmp_path)
    with tester.plugins:
        yield tmp_path


def planned(text: str, **flags: Any) -> Plan:
    Path("run.toml").write_text(text)
    typed = {path.replace("__", "."): words for path, words in flags.items()}
    return plan_run([Path("run.toml")], typed, Registry.discover())


def kept(plan: Plan) -> RunConfig:
    Path("kept").mkdir()
    Path("kept/run.toml").write_text(plan.to_toml())
    return settings_of(Path("kept"))


def test_each_source_is_planned_with_its_own_settings_above_those_of_the_run(here: Path) -> None:
    plan = planned(RUN + ONE + TWO)
    one, two = (source.plan.config for source in plan.sources)
    assert [(source.name, source.weight) for source in plan.sources] == [("one", 2.0), ("two", 1.0)]
    assert (one.sampling.num_generations, two.sampling.num_generations) == (8, 4)
    assert (one.sampling.max_new_tokens, two.sampling.max_new_tokens) == (3, 3)
    assert (one.algorithm.kl_coeff, two.algorithm.kl_coeff) == (0.0, 0.5)
    assert (one.rewards[0].weight, two.rewards[0].weight) == (1.0, 0.5)
    assert str(two.data.sources[0].path) == "two.jsonl"
    assert not plan.config.data.sources
    assert not plan.config.rewards
    assert dict(plan.config.eval.eval_dataset) == {"held": "two.jsonl"}
    assert plan.config.training.train_microbatch_size == 4 * 8
    assert plan.parts == plan.sources
    assert str(plan.sources[1].plan.origins["sampling.num_generations"]) == "run.toml"


def test_the_only_part_of_a_run_without_sources_is_the_run(here: Path) -> None:
    plan = planned(RUN + '[data]\ndataset = "one.jsonl"\n[[rewards]]\nname = "fake"')
    (part,) = plan.parts
    assert part.plan is plan
    assert (part.name, part.data_name("train"), plan.sources) == ("", "train", ())


def test_the_resolved_text_plans_the_same_run(here: Path) -> None:
    plan = planned(RUN + ONE + TWO + 'algorithm.filter_range = "none"\n')
    Path("again").mkdir()
    Path("again/run.toml").write_text(plan.to_toml())
    again = plan_run([Path("again/run.toml")], {}, Registry.discover())
    assert 'filter_range = "none"' in plan.to_toml()
    assert not changed_settings(again, settings_of(Path("again")))
    for before, after in zip(plan.sources, again.sources, strict=True):
        for path in before.plan.origins:
            if of_a_source(path) and path not in ("data.dataset", "eval.eval_dataset"):
                assert get_path(before.plan.config, path) == get_path(after.plan.config, path), path
    assert again.sources[0].plan.config.data.sources[0].path == str(here / "one.jsonl")


def test_a_flag_holds_for_sources_that_do_not_set_it(here: Path) -> None:
    plan = planned(RUN + ONE + TWO, sampling__num_generations=TypedFlag("-g", ("6",)))
    assert [source.plan.config.sampling.num_generations for source in plan.sources] == [6, 4]


def test_the_run_takes_the_lowest_staleness_of_its_sources(here: Path) -> None:
    """A loss without a ratio cannot train stale data, so the other source does not either."""
    text = RUN.replace("max_staleness = 0", 'max_staleness = "auto"').replace("[schedule]", '[run]\nruntime = "local"\n[schedule]')
    text += ONE.replace("[[sources.rewards]]", '[sources.algorithm]\nmismatch_correction = "truncated"\n[[sources.rewards]]')
    text += TWO + 'sampling.top_p = 0.5\nalgorithm.mismatch_correction = "none"\n'
    plan = planned(text)
    assert {source.plan.config.schedule.max_staleness for source in plan.sources} == {0}
    assert plan.config.schedule.max_staleness == 0
    assert {source.plan.config.algorithm.old_logprobs for source in plan.sources} == {"trainer"}


REFUSED = [
    (ONE + TWO.replace('"two"', '"one"', 1), "run.toml, line 25: name = 'one' of [[sources]] is the name of two sources"),
    (ONE.replace('"one"', '"a/b"', 1), "run.toml, line 17: name = 'a/b' of [[sources]] is not a plain word (without slashes, invisible"),
    (ONE + TWO.replace('"two"', '".two"', 1), "run.toml, line 25: name = '.two' of [[sources]] is not a plain word"),
    (
        ONE.replace("weight = 2", "weight = 0"),
        "run.toml, line 18: sources.0.weight = 0 (core) must be a finite number from 1e-06 to 1000000",
    ),
    (ONE.replace('name = "one"', ""), "sources.0 has no name, which core needs: a text that is not empty; write name = …"),
    (
        ONE + "[sources.training]\nlearning_rate = 1",
        "training.learning_rate is a setting of the whole run, and a source cannot have its own",
    ),
    (ONE + "[sources.sampling]\nstop = []", "run.toml, line 24: sampling.stop is a setting of the whole run"),
    (ONE + "[sources.sampling]\nnum_generation = 1", "sampling.num_generation is not a setting of [sampling] (core)"),
    (ONE + '[sources.sampling]\nnum_generations = "x"', 'run.toml, line 24: sampling.num_generations = "x" (core) must be a whole number'),
    (ONE + TWO + "sampling.top_p = 2.0", "source two: run.toml, line 31: sampling.top_p = 2.0 (core) must be"),
    (
        ONE.replace('[[sources.rewards]]\nname = "fake"', ""),
        "no reward is given: type -rt and its name (rlcore plugins lists them)",
    ),
    (ONE.replace('dataset = "one.jsonl"', ""), "no data set is given: set dataset in [sources.data]"),
    ('[data]\ndataset = "one.jsonl"\n' + ONE, "with [[sources]], each source has its own; write dataset in [sources.data]"),
    (ONE + TWO.replace('"two"', '"three"', 1) + TWO, "source two: another source has an evaluation task 'held', too"),
    ("[eval]\neval_interval = 3\n" + ONE, "eval_interval = 3 (run.toml, line 16) needs an evaluation data set"),
    ('[log]\nbest_by = "eval/other"\n' + ONE + TWO, "best_by = eval/other (run.toml, line 16) is not a metric of this run"),
    ('[log]\nbest_by = "source/three/accuracy"\n' + ONE, "best_by = source/three/accuracy (run.toml, line 16) is not a metric of this run"),
    ("[sources]\nname = 1", "sources must be a list of tables, each with a name, written [[sources]]"),
    (ONE + '[sources.algorithm]\nloss = "nowhere"', "run.toml, line 24"),
]


@pytest.mark.parametrize(("text", "said"), REFUSED)
def test_what_is_wrong_in_a_source_is_said_with_its_place(here: Path, text: str, said: str) -> None:
    with pytest.raises((ConfigError, PluginError), match=re.escape(said)):
        planned(RUN + text)


def test_the_best_checkpoint_may_be_that_of_a_source(here: Path) -> None:
    assert planned('[log]\nbest_by = "source/two/accuracy"\n' + RUN + ONE + TWO).config.log.best_by == "source/two/accuracy"


def test_a_flag_that_no_source_uses_is_refused(here: Path) -> None:
    each = ONE.replace("[[sources.rewards]]", "[sources.sampling]\nnum_generations = 8\n[[sources.rewards]]") + TWO
    with pytest.raises(ConfigError, match="-g has no effect: each of"):
        planned(RUN + each, sampling__num_generations=TypedFlag("-g", ("6",)))


def test_one_filtering_source_is_enough_for_dynamic_batching(here: Path) -> None:
    dynamic = RUN.replace('name = "fake"\n[sampling]', 'name = "fake"\ndynamic_batching = true\n[sampling]')
    assert planned(dynamic + ONE + TWO + "algorithm.filter_range = [0.1, 0.9]\n").config.algorithm.dynamic_batching
    with pytest.raises(ConfigError, match="replaces filtered groups, and no filter is set"):
        planned(dynamic + ONE + TWO)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (("weight = 2", "weight = 3"), "sources.one.weight"),
        (('"one"', '"first"'), "sources"),
        (("num_generations = 4", "num_generations = 2"), "sources.two.sampling.num_generations"),
        (('dataset = "two.jsonl"', 'dataset = "one.jsonl"'), "sources.two.data.dataset"),
    ],
)
def test_a_resumed_run_keeps_what_its_checkpoint_counts(here: Path, change: tuple[str, str], path: str) -> None:
    before = kept(planned(RUN + ONE + TWO))
    after = planned(RUN + ONE.replace(*change) + TWO.replace(*change))
    with pytest.raises(ConfigError, match=re.escape(path)):
        check_resumable(after, before, "rlcore train")


def test_a_resumed_run_may_change_a_temperature_of_a_source(here: Path) -> None:
    before = kept(planned(RUN + ONE + TWO))
    after = planned(RUN + ONE + TWO + "sampling.temperature = 0.5\n")
    check_resumable(after, before, "rlcore train")
    assert changed_settings(after, before) == {"sources.two.sampling.temperature": ("1.0", "0.5")}


def test_the_rewards_of_sources_share_what_is_equal(here: Path) -> None:
    """Equal rewards have one entry; a reward with other settings has a label of its own, and its plain name in scores."""
    plan = planned(RUN + ONE + ONE.replace('"one"', '"again"', 1) + TWO)
    entries, routes = routed_entries(plan)
    assert [(entry.name, entry.label, entry.weight) for entry in entries] == [("fake", "fake", 1.0), ("fake", "fake@two", 0.5)]
    assert routes == ((0,), (0,), (1,))


def test_options_of_the_sampler_of_sources_are_checked(here: Path) -> None:
    with pytest.raises(
        ConfigError, match=re.escape("data.sampler_options.speed is not an option of sampler weighted of rlcore; it has no options")
    ):
        planned("[data.sampler_options]\nspeed = 1\n" + RUN + ONE)
    with pytest.raises(PluginError, match=re.escape("run.toml, line 2: ") + ".*nowhere"):
        planned('[data]\nsampler = "nowhere"\n' + RUN + ONE)
    said = "draws the sources of this run, and the sampler rising_level draws from data without end only; set it in [sources.data]"
    with pytest.raises(ConfigError, match=re.escape(said)):
        planned('[data]\nsampler = "rising_level"\n' + RUN + ONE)
    plan = planned('[data]\nsampler = "sequential"\nshuffle = false\n' + RUN + ONE)
    assert (plan.config.data.sampler, plan.sources[0].plan.config.data.sampler) == ("sequential", "auto")
    assert planned(RUN + ONE).config.data.sampler == "weighted"


def test_a_sampler_of_sources_that_ignores_their_weights_is_noted(here: Path) -> None:
    said = "the sampler of the sources: sampler = sequential (run.toml, line 2) draws each source equally often, so their weights have no"
    turns = '[data]\nsampler = "sequential"\n' + RUN
    assert any(note.startswith(said) for note in planned(turns + ONE + TWO).notes)
    for text in (turns + ONE.replace("weight = 2", "") + TWO, RUN + ONE + TWO):
        assert not any("equally often" in note for note in planned(text).notes)


def test_a_remark_on_the_group_of_a_source_says_where_to_change_it(here: Path) -> None:
    """A flag has no effect on a source that sets its own value."""
    alone = "sampling.num_generations = 1\nalgorithm.estimator = 'group_norm'\n"
    notes = planned(RUN + ONE + TWO.replace("sampling.num_generations = 4\n", alone)).notes
    (said,) = [note for note in notes if "has no advantage" in note]
    assert said.startswith("source two: num_generations = 1 (run.toml, line 27)")
    assert said.endswith("; write num_generations = 2 or more")
    notes = planned(RUN + ONE + TWO.replace("sampling.num_generations = 4\n", ""), sampling__num_generations=TypedFlag("-g", ("1",))).notes
    assert not any("write num_generations" in note for note in notes)


def test_a_recipe_gives_a_source_only_what_a_source_may_set(here: Path) -> None:
    """The other settings, such as ``dynamic_batching``, are those of the run's own recipe."""
    own = ONE.replace(
        "[[sources.rewards]]", '[sources.algorithm]\nname = "dapo"\n[sources.sampling]\nmax_new_tokens = 8\n[[sources.rewards]]'
    )
    config = planned(RUN + own).sources[0].plan.config.algorithm
    assert (config.filter_range, config.skip_threshold, config.dynamic_batching) == ((0.01, 0.99), 20.0, False)
    of_run = planned(RUN.replace('[algorithm]\nname = "fake"', '[algorithm]\nname = "dapo"') + own).sources[0].plan.config.algorithm
    assert (of_run.filter_range, of_run.skip_threshold, of_run.dynamic_batching) == ((0.01, 0.99), 20.0, True)
