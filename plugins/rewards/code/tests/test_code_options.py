"""What users set, what the plugin declares, and how a run is checked."""

import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import ValidationError
from rlcore_plugin_code import rlcore_api, rlcore_check_run, rlcore_register_rewards
from rlcore_plugin_code.audit import POLICY, REFUSED
from rlcore_plugin_code.options import CodeOptions

from rlcore.testing import RunTester


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"correct_score": 0}, "correct_score"),
        ({"format_score": -1}, "format_score"),
        ({"format_score": 10}, "must be below correct_score"),
        ({"wall_seconds": 41}, "above total_seconds"),
        ({"cpu_seconds": 0}, "cpu_seconds"),
        ({"memory_mb": 1}, "memory_mb"),
        ({"total_seconds": float("inf")}, "total_seconds"),
        ({"correct_score": float("inf")}, "correct_score"),
        ({"relative_tolerance": 1}, "relative_tolerance"),
        ({"max_tests": 0}, "max_tests"),
        ({"sandbox": {"level": "firejail"}}, "sandbox.level"),
        ({"sandbox": {"colour": 1}}, "sandbox.colour"),
        ({"colour": 1}, "colour"),
    ],
)
def test_options_that_break_a_rule(options, words):
    with pytest.raises(ValidationError) as caught:
        CodeOptions(**options)
    assert words in str(caught.value)


def test_options_survive_the_way_to_a_worker():
    options = CodeOptions(partial=True, sandbox={"level": "landlock", "readable": ["/opt"]})
    assert CodeOptions(**options.model_dump()) == options
    assert CodeOptions.model_validate(options.model_dump(mode="json")) == options


def test_every_option_is_described():
    assert all(field.description for field in CodeOptions.model_fields.values())


def test_what_the_plugin_declares():
    (spec,) = rlcore_register_rewards()
    assert rlcore_api == "2.0"
    assert (spec.name, spec.requires, spec.full_value_option, spec.deadline) == ("code", ("test_cases",), "correct_score", 60.0)
    assert "```python" in spec.system_prompt
    assert CodeOptions().total_seconds + CodeOptions().wall_seconds <= spec.deadline


def entry(deadline, name="code", **options):
    return SimpleNamespace(name=name, deadline=deadline, options=CodeOptions(**options).model_dump())


def test_a_deadline_must_leave_room():
    config = SimpleNamespace(
        rewards=[entry(50), entry(49, "boxed"), entry(49.5), entry(31, total_seconds=20), entry(29, "Code", total_seconds=20)]
    )
    problems = rlcore_check_run(config)
    assert len(problems) == 2
    assert "deadline = 49.5 is below" in problems[0]
    assert "type --reward-deadline 50" in problems[0]
    assert "type --reward-deadline 30" in problems[1]


@pytest.fixture
def planned(tmp_path):
    tester = RunTester(tmp_path, in_process=True)
    tester.write_jsonl("t.jsonl", [{"messages": {"role": "user", "content": "add"}, "test_cases": {"inputs": ["1 2"], "outputs": ["3"]}}])

    def run(deadline, sandbox):
        reward = {"name": "code", "deadline": deadline, "options": {"sandbox": sandbox}}
        tester.write_toml("run.toml", {"model": {"model": "org/model"}, "data": {"dataset": "t.jsonl"}, "rewards": [reward]})
        return tester.run("train", "run.toml", "--dry-run")

    return run


def test_a_table_of_its_own_for_the_sandbox(planned):
    assert '"level": "landlock"' in planned(60, {"level": "landlock"}).assert_ok().stdout


def test_what_is_wrong_in_it_is_named_by_its_path(planned):
    planned(60, {"level": "firejail"}).assert_refused("rewards.0.options.sandbox.level", "firejail", "namespaces")


def test_a_run_whose_deadline_is_too_short_is_refused(planned):
    planned(30, {}).assert_refused("deadline = 30", "--reward-deadline 50")


def test_a_run_refuses_rows_whose_tests_cannot_be_used(tmp_path):
    tester = RunTester(tmp_path).with_fakes()
    columns = ({"inputs": ["1"], "outputs": ["1"]}, {"inputs": ["1"]}, {"inputs": ["1", "2"], "outputs": ["1"]})
    rows = [{"messages": {"role": "user", "content": "a"}, "test_cases": cases} for cases in columns]
    config = tester.fake_run(data={"dataset": str(tester.write_jsonl("tests.jsonl", rows))})
    said = (
        "tests.jsonl:2: reward code cannot score this row: test_cases must be",
        "but there is no 'outputs'",
        "tests.jsonl:3: reward code cannot score this row: test_cases has 2 inputs and 1 outputs",
    )
    tester.run("train", config, "--reward", "code").assert_refused(*said)


def test_the_readme_shows_every_option_with_its_default_and_every_decision():
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    shown = tomllib.loads(text.partition("```toml")[2].partition("```")[0])["rewards"][0]
    assert CodeOptions(**shown["options"]) == CodeOptions()
    assert set(shown["options"]) == set(CodeOptions.model_fields)
    assert shown["deadline"] == rlcore_register_rewards()[0].deadline
    assert all(f"`{name}`" in text for name in (*POLICY, REFUSED))
