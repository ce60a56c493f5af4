"""Several sources in the simulation: shares of the prompts, accounting by source, what their sampler sees, and workload files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore_plugin_tools.plan.bounds import generation_seconds, training_seconds
from rlcore_plugin_tools.plan.simulated import Draws, Scenario, Simulation, Workload, simulate
from scenarios import scenarios, workload

from rlcore.api import DrawResult, Sampler
from rlcore.api.schedule import ChosenSampler
from rlcore.testing import RunTester

TWO = """
[group]
response_tokens = 100
response_sigma = 0.0
num_generations = 2
train_batch_size = 12

[weights]
weights_gb = 0.1

[[sources]]
name = "math"
weight = 2
num_generations = 4
response_tokens = 300
accuracy = 0.4

[[sources]]
name = "talk"
accuracy = 0.98
reward_seconds = 0
"""


def _with(plain: Workload, *sources: dict[str, Any]) -> Workload:
    """The workload with these [[sources]], named in their order."""
    named = [{"name": f"source-{number}", **source} for number, source in enumerate(sources)]
    return Workload.model_validate({**plain.plain(), "sources": named})


@st.composite
def mixed(draw: st.DrawFn) -> Scenario:
    """A random cluster with one to four sources."""
    scenario = draw(scenarios())
    source = st.fixed_dictionaries(
        {"weight": st.floats(0.1, 10)},
        optional={
            "num_generations": st.integers(1, 4),
            "response_tokens": st.floats(10, 100),
            "filtered": st.sampled_from([0.0, 0.4]),
            "accuracy": st.floats(0.01, 0.99),
            "reward_seconds": st.sampled_from([0.0, 0.2]),
        },
    )
    return replace(scenario, workload=_with(scenario.workload, *draw(st.lists(source, min_size=1, max_size=4))))


@settings(max_examples=60, deadline=None)
@given(scenarios())
def test_one_source_that_changes_nothing_changes_no_figure(scenario: Scenario) -> None:
    alone, named = simulate(scenario), simulate(replace(scenario, workload=_with(scenario.workload, {})))
    assert alone.sources == {}
    assert named.sources["source-0"].trained == 1.0
    assert replace(named, sources={}) == alone


def test_a_workload_without_sources_draws_from_the_five_streams_of_its_seed() -> None:
    plain = workload(group={"response_sigma": 0.7, "prompt_sigma": 0.2, "filtered": 0.5}, rewards={"reward_seconds": 0.1})
    draws = Draws(Scenario(workload=plain, producers=1, trainers=1, seed=11))
    prompts, responses, judged, failing, passing = map(np.random.default_rng, np.random.SeedSequence(11).spawn(5))
    seconds = plain.rewards.seconds(0.1)
    assert seconds is not None
    assert [draws.prompt() for _ in range(9)] == plain.group.prompts.draw(prompts, 4096).tolist()[:9]
    assert [draws.responses()[0] for _ in range(9)] == plain.group.responses.draw(responses, 4096).tolist()[:9]
    assert [draws.verdicts()[0] for _ in range(9)] == seconds.draw(judged, 4096).tolist()[:9]
    assert [draws.accuracy() in (0.0, 1.0) for _ in range(99)] == [chance < 0.5 for chance in passing.random(4096)[:99]]
    assert draws.until_failure(30.0) == failing.exponential(30.0)


@settings(max_examples=60, deadline=None)
@given(mixed())
def test_shares_of_the_prompts_stay_within_one_draw_of_the_weights(scenario: Scenario) -> None:
    simulation = Simulation(scenario)
    while not simulation.done:
        simulation.step()
        issued = [sum(tally.issued for tally in ledger.episodes.values()) for ledger in simulation.coordinator.ledgers]
        for count, (share, _) in zip(issued, scenario.workload.drawn, strict=True):
            assert abs(count - share * sum(issued)) < 1 + 1e-6


@settings(max_examples=60, deadline=None)
@given(mixed())
def test_the_sums_over_sources_are_the_totals(scenario: Scenario) -> None:
    simulation = Simulation(scenario)
    figures, status = simulation.run(), simulation.coordinator.status()
    found = figures.sources.values()
    assert sum(one.trained for one in found) == pytest.approx(1)
    assert sum(one.decoded for one in found) == pytest.approx(1)
    assert sum(one.ledger["trained"] for one in found) == simulation.sums.groups == scenario.updates * scenario.batch
    assert sum(one.filtered for one in found) == sum(one.ledger["filtered"] for one in found) == status.filtered
    open_ = status.in_flight + status.buffered + status.taken + status.given_back
    assert sum(one.ledger["issued"] - one.ledger["trained"] - one.ledger["filtered"] for one in found) == open_
    assert {name: one.ledger["trained"] for name, one in figures.sources.items()} == {
        name: ended["trained"] for name, ended in status.sources.items()
    }


def test_bounds_of_two_sources_are_those_computed_by_hand() -> None:
    """Weights 3 and 1, and half of the first source is filtered: 6 and 2 of 10 prompts, 3 and 2 of 5 groups of an update."""
    two = _with(
        workload(group={"train_batch_size": 10}, update={"token_seconds": 0.01}, generation={"slots": 1000}),
        {"weight": 3, "filtered": 0.5, "num_generations": 2, "response_tokens": 40.0},
        {"weight": 1, "num_generations": 6, "response_tokens": 10.0},
    )
    scenario = Scenario(workload=two, producers=2, trainers=4, in_flight=5)
    assert scenario.responses == pytest.approx(6 * 2 + 4 * 6)
    assert training_seconds(scenario) == pytest.approx(1 + 0.01 * (6 * 2 * 40 + 4 * 6 * 10) / 4)
    # 16 groups for a batch, 8 for each producer: 6 x 2 x 40 + 2 x 6 x 10 = 600 tokens. A group of the first source is open four times as
    # long and as often three times, so of 5 groups 60/13 are of it: 60/13 x 2 + 5/13 x 6 = 11.5 requests run, rounded up.
    assert generation_seconds(scenario) == pytest.approx(600 * 0.02 / 12, rel=1e-6)


def test_a_batch_of_two_sources_costs_what_its_groups_cost() -> None:
    two = _with(
        workload(update={"token_seconds": 0.01}), {"response_tokens": 50.0}, {"response_tokens": 25.0, "num_generations": 3, "weight": 3}
    )
    figures = simulate(Scenario(workload=two, producers=2, trainers=1, updates=8))
    first, second = figures.sources.values()
    assert (first.trained, second.trained) == (0.25, 0.75)
    assert first.decoded == pytest.approx(4 * 50 / (4 * 50 + 12 * 3 * 25))
    assert figures.tokens_per_second * figures.seconds == pytest.approx(8 * (4 * 50 + 12 * 3 * 25))
    assert figures.trainer_busy * figures.seconds == pytest.approx(8 * (1 + 0.01 * (4 * 50 + 12 * 3 * 25)))


def test_each_source_is_judged_in_its_own_time() -> None:
    """A batch is generated in 1 s and trained in 1 s; between, the groups of the second source are judged for 5 s."""
    judged = workload(rewards={"reward_workers": 16})
    two = _with(judged, {"reward_seconds": 0.0}, {"reward_seconds": 5.0})
    assert simulate(Scenario(workload=two, producers=2, trainers=1, updates=4)).seconds == pytest.approx(4 * 7)


class _Turns(Sampler):
    """Draws the sources in turn, and keeps what it sees."""

    def __init__(self, items: int) -> None:
        self.drawn, self.items = 0, items
        self.seen: list[DrawResult] = []

    def next(self) -> int:
        self.drawn += 1
        return (self.drawn - 1) % self.items

    def observe(self, result: DrawResult) -> None:
        self.seen.append(result)


def test_the_sampler_sees_the_accuracies_of_the_sources() -> None:
    plain = _with(workload(), {"accuracy": 0.3, "filtered": 0.5}, {"accuracy": 0.9, "weight": 100})
    samplers: list[_Turns] = []

    def among(seed: int) -> ChosenSampler:
        samplers.append(_Turns(2))
        return ChosenSampler(samplers[-1], "turns", "sampler turns", 2)

    simulate(Scenario(workload=plain, producers=4, trainers=1, max_staleness=1, updates=100, warm_up=0, among=among))
    seen = [[one for one in samplers[0].seen if one.item == item] for item in (0, 1)]
    assert {one.accuracy for one in seen[0]} == {0.0, 0.3, 1.0}
    assert all((one.ended == "filtered") == (one.accuracy != 0.3) for one in seen[0])
    assert {(one.accuracy, one.reward, one.ended) for one in seen[1]} == {(0.9, 0.9, "trained")}
    assert _mean(seen[0]) == pytest.approx(0.3, abs=0.05)
    assert sum(one.ended == "filtered" for one in seen[0]) == pytest.approx(len(seen[0]) / 2, rel=0.1)
    assert abs(len(seen[0]) - len(seen[1])) < 40


def _mean(seen: Sequence[DrawResult]) -> float:
    return sum(one.accuracy or 0.0 for one in seen) / len(seen)


@pytest.fixture
def tester(tmp_path: Any) -> RunTester:
    made = RunTester(tmp_path, in_process=True)
    made.write("two.toml", TWO)
    return made


def test_the_table_and_the_json_have_the_figures_of_each_source(tester: RunTester) -> None:
    words = ("plan", "two.toml", "-i", "2", "-t", "2", "--max-staleness", "1", "--updates", "6")
    lines = [line.split() for line in tester.run(*words).assert_ok().stdout.splitlines()]
    found = tester.run(*words, "--json").assert_ok().json
    sources = found["zero_bubble"]["sources"]
    assert set(sources) == {"math", "talk"}
    assert 0.6 < sources["math"]["trained"] < 0.72
    ((_, *cells),) = (line for line in lines if line[:1] == ["math"])
    ledger = [str(sources["math"]["ledger"][key]) for key in ("issued", "trained", "filtered")]
    assert cells == ["66.7%", f"{sources['math']['trained']:.1%}", f"{sources['math']['decoded']:.1%}", "0", *ledger]
    assert "-g" not in lines[-1]
    assert [source["reward_seconds"] for source in found["workload"]["sources"]] == [0.05, 0.0]


def test_a_sampler_of_the_sources_is_found_by_its_name(tester: RunTester) -> None:
    words = ("-i", "2", "-t", "2", "--max-staleness", "0", "--updates", "20", "--json")
    by_weight = tester.run("plan", "two.toml", *words).assert_ok().json["zero_bubble"]["sources"]
    tester.write("near.toml", f'sampler = "success_rate"\nsampler_options = {{target = 0.98, explore = 0.01}}\n{TWO}')
    by_success = tester.run("plan", "near.toml", *words).assert_ok().json["zero_bubble"]["sources"]
    assert by_success["talk"]["ledger"]["issued"] > 1.2 * by_weight["talk"]["ledger"]["issued"]


def test_a_dry_run_with_sources_prints_a_workload_that_can_be_typed(tester: RunTester) -> None:
    tester.write("near.toml", f'sampler = "success_rate"\n{TWO}')
    shown = tester.run("plan", "near.toml", "--devices", "4", "-g", "3", "--dry-run").assert_ok()
    tester.write("all.toml", shown.stdout)
    assert tester.run("plan", "all.toml", "--devices", "4", "--dry-run").assert_ok().stdout == shown.stdout
    assert [source.num_generations for source in Workload.model_validate(_toml(shown.stdout)).sources] == [4, 3]


def _toml(text: str) -> dict[str, Any]:
    import tomllib

    return {**tomllib.loads(text), "faults": {}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[sources]]\nname = "a"\nweight = 0\n', "bad.toml, line 3: sources.0.weight = 0 (workload) must be a finite number from 1e-06"),
        ("[[sources]]\nweight = 2\n", "sources.0 has no name"),
        ('[[sources]]\nname = "a"\n[[sources]]\nname = "a"\n', "bad.toml, line 1: name = 'a' is the name of two [[sources]]"),
        ('[[sources]]\nname = "a"\ntrain_batch_size = 3\n', "line 3: sources.0.train_batch_size is not a setting"),
        (
            '[[sources]]\nname = "a"\naccuracy = 1.0\n',
            "line 3: sources.0.accuracy = 1.0 (workload) must be a finite number from 0.001 to 0.999",
        ),
        ('[sources]\nname = "a"\n', "bad.toml, line 1: sources must be a list of tables, each with a name, written [[sources]]"),
        ("sources = 3\n", "bad.toml, line 1: sources must be a list of tables"),
        ('sampler = "weighted"\n', "bad.toml, line 1: sampler is of a workload with [[sources]]; add them, or leave it out"),
        ('sampler = "nothing"\n[[sources]]\nname = "a"\n', "bad.toml, line 1: "),
        ('sampler = 3\n[[sources]]\nname = "a"\n', "bad.toml, line 1: sampler = 3"),
        ('sampler = "rising_level"\n[[sources]]\nname = "a"\n', "bad.toml, line 1: "),
        ('[sampler_options]\nx = 1\n[[sources]]\nname = "a"\n', "bad.toml, line 1: sampler weighted of rlcore has no options"),
        (
            'sampler = "success_rate"\n[sampler_options]\ntarget = 2\n[[sources]]\nname = "a"\n',
            "bad.toml, line 3: sampler_options.target = 2 (sampler success_rate of rlcore-plugin-tools) must be",
        ),
        ('[[sources]]\nname = "a"\nnum_generations = 65536\n', "responses per update; at most 262,144"),
    ],
)
def test_sources_that_cannot_work_are_refused_in_one_sentence(tester: RunTester, text: str, said: str) -> None:
    tester.write("bad.toml", text)
    tester.run("plan", "bad.toml", "--devices", "4", "--dry-run").assert_refused(said)
