"""`make bench-algorithms` without its training: which runs, what is kept of them, the verdicts, the page, going on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import algorithms, algorithms_plan
from benchmarks.algorithms_plan import CONTROL, CORRECTED, OFF_POLICY, SEEDS, Row, Run, key_of, rows, runs_in_order
from benchmarks.algorithms_source import Source
from benchmarks.algorithms_table import append_result, lines_of, read_results, table_text, write_page
from benchmarks.coin import coin
from rlcore.api import Message, RewardInput
from rlcore.config import plan_run
from rlcore.contracts.errors import RunError, UsageError
from rlcore.registry.plugin_registry import Registry

RECIPES = ("grpo", "newcomer")
SOURCE = Source("1234567890" * 4, "c0de")
MADE_WITH = {"commit": SOURCE.commit, "code": SOURCE.code}


def record(row: Row, seed: int, final: float, base: float = 0.4, **other: Any) -> dict[str, Any]:
    figures = {"base": base, "final": final, "steps": 100, "seconds": 9.0, "cpu_seconds": 11.0, "lag": 0.0, "learning_rate": 4e-4}
    return {**Run(row, seed).identity(), **figures, "rlcore": "0", "date": "2026-01-01", **MADE_WITH, **other}


def verdicts(*records: dict[str, Any]) -> dict[str, str]:
    return {line.row.label: line.verdict for line in lines_of(records)}


def of_all_seeds(row: Row, *finals: float) -> list[dict[str, Any]]:
    return [record(row, seed, final) for seed, final in zip(SEEDS, finals, strict=True)]


COIN_ROW = Row(CONTROL, "grpo")
COIN = of_all_seeds(COIN_ROW, 0.3, 0.3, 0.3)


# --- which runs


def test_every_registered_recipe_is_run_and_those_for_stale_data_thrice() -> None:
    registered = Registry.discover().names("algo")
    assert set(registered) >= {"grpo", "dapo", "rloo", "reinforce++", "clip_cov"}
    table = rows(registered)
    assert {row.recipe for row in table} == set(registered)
    for name in registered:
        assert [row.staleness for row in table if row.label == name] == ([0, 2, 8] if name in OFF_POLICY else [0])
    assert set(OFF_POLICY) <= set(registered)
    assert [row.staleness for row in table if row.label in CORRECTED] == [2, 8] * len(CORRECTED)


def test_the_order_shows_a_weak_recipe_early() -> None:
    runs = runs_in_order(rows(RECIPES))
    assert len({run.key for run in runs}) == len(runs)
    told = [str(run) for run in runs]
    assert told[:6] == [
        "grpo, staleness 0, seed 0",
        "newcomer, staleness 0, seed 0",
        "random reward, staleness 0, seed 0",
        "random reward, staleness 0, seed 1",
        "random reward, staleness 0, seed 2",
        "grpo, staleness 0, seed 1",
    ]
    assert told[9:11] == ["grpo, staleness 2, seed 0", "grpo, staleness 8, seed 0"]
    assert {run.row.label for run in runs[-12:]} == set(CORRECTED)


def test_a_key_tells_apart_whatever_is_run_differently(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Run(Row("grpo", "grpo"), 0).key
    others = {Run(row, seed).key for row, seed in ((Row("grpo", "grpo", 2), 0), (Row("grpo", "grpo"), 1), (COIN_ROW, 0))}
    assert len(others | {plain}) == 4
    assert key_of(json.loads(json.dumps(record(Row("grpo", "grpo"), 0, 0.9)))) == plain
    monkeypatch.setattr(algorithms_plan, "LEARNING_RATE", {"grpo": (1e-4, "a test")})
    assert Run(Row("grpo", "grpo"), 0).key not in others | {plain}
    monkeypatch.undo()
    monkeypatch.setattr(algorithms_plan, "VERSION", "next")
    assert Run(Row("grpo", "grpo"), 0).key != plain


def test_every_row_is_accepted_and_runs_with_its_recipes_own_defaults(tmp_path: Path) -> None:
    registry = Registry.discover()
    for row in rows(registry.names("algo")):
        spec = registry.spec("algo", row.recipe)
        config = plan_run([], {}, registry, overrides=Run(row, 1).settings(tmp_path, tmp_path / "runs")).config
        for path, (value, _) in spec.defaults.items():  # type: ignore[attr-defined]
            found: Any = config.model_dump()
            for key in path.split("."):
                found = found[key]
            assert found == value or path == "schedule.max_staleness", f"{row}: {path}"
        assert (config.run.seed, config.run.max_steps, config.eval.eval_interval) == (1, 100, 0)
        assert config.schedule.max_staleness == row.staleness
        assert config.rewards[0].name.endswith("coin.py:coin" if row.label == CONTROL else "boxed")


def test_the_settings_of_a_run_name_the_model_and_the_data_by_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths of a file are relative to its folder, and a sweep writes the file elsewhere than into the quickstart's folder."""
    monkeypatch.chdir(tmp_path)
    settings = Run(Row("grpo", "grpo"), 0).settings(Path("assets"), tmp_path / "runs")
    assert settings["model"]["model"] == str(tmp_path / "assets" / "base")
    assert settings["data"]["dataset"] == str(tmp_path / "assets" / "train.jsonl")
    assert settings["eval"]["eval_dataset"] == {"sort": str(tmp_path / "assets" / "heldout.jsonl")}


def test_the_coin_reports_the_truth_and_pays_whatever_it_is() -> None:
    def judged(text: str, prompt: str) -> Any:
        message = Message(role="user", content=prompt)
        return coin(RewardInput(text=text, messages=(message,), columns={"gt_answer": "1 2"}))

    right = [judged("\\boxed{1 2}", f"sort {number}") for number in range(64)]
    wrong = [judged("\\boxed{2 1}", f"sort {number}") for number in range(64)]
    assert {score.accuracy for score in right} == {1.0}
    assert {score.accuracy for score in wrong} == {0.0}
    for scores in (right, wrong):
        assert 16 < sum(score.value == 10.0 for score in scores) < 48


# --- what is kept


def test_results_come_back_and_the_last_of_a_key_counts(tmp_path: Path) -> None:
    file = tmp_path / "results" / "algorithms.jsonl"
    assert read_results(file) == ([], "")
    first, second, again = (record(Row("grpo", "grpo"), seed, final) for seed, final in ((0, 0.8), (1, 0.7), (0, 0.9)))
    for item in (first, second, again):
        append_result(file, item)
    assert read_results(file) == ([second, again], "")
    assert len(file.read_text().splitlines()) == 3


@pytest.mark.parametrize("torn", ['{"bench": "1', json.dumps(record(Row("grpo", "grpo"), 1, 0.9))])
def test_a_torn_last_line_is_ignored_with_a_note_and_cut_off_by_the_next(tmp_path: Path, torn: str) -> None:
    file = tmp_path / "algorithms.jsonl"
    whole, next_one = record(Row("grpo", "grpo"), 0, 0.8), record(Row("grpo", "grpo"), 2, 0.9)
    append_result(file, whole)
    file.write_text(file.read_text() + torn)
    records, note = read_results(file)
    assert records == [whole]
    assert "torn" in note
    append_result(file, next_one)
    assert read_results(file) == ([whole, next_one], "")


def test_a_first_line_that_is_torn_leaves_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "algorithms.jsonl"
    file.write_text('{"la')
    append_result(file, record(Row("grpo", "grpo"), 0, 0.8))
    assert len(read_results(file)[0]) == 1


@pytest.mark.parametrize("line", ["{", "3", '{"label": "grpo"}', ""])
def test_a_whole_line_that_is_no_result_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "algorithms.jsonl"
    append_result(file, record(Row("grpo", "grpo"), 0, 0.8))
    file.write_text(file.read_text() + line + "\n")
    with pytest.raises(UsageError, match="line 2: not a result"):
        read_results(file)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("final", "0.9"),
        ("final", float("nan")),
        ("lag", True),
        pytest.param("cpu_seconds", 10**400, id="huge"),
        ("seed", [0]),
        ("recipe", ["grpo"]),
        ("label", None),
        ("overrides", []),
        ("commit", None),
        ("code", 7),
        ("date", 2026),
    ],
)
def test_a_value_of_the_wrong_kind_is_named_with_its_line(
    command: Command, capsys: pytest.CaptureFixture[str], name: str, value: Any
) -> None:
    for damaged in (record(Row("grpo", "grpo"), 0, 0.8), {**record(Row("grpo", "grpo"), 1, 0.8), name: value}):
        append_result(command.results, damaged)
    assert command() == command("--table") == 2
    told = capsys.readouterr().err.splitlines()
    assert told[0] == told[1]
    assert told[0].startswith(f"error: {command.results}, line 2: not a result of bench-algorithms ({name} is ")
    assert command.made == []


@pytest.mark.parametrize("name", ["base", "final", "lag", "learning_rate", "cpu_seconds", "overrides", "bench"])
def test_a_value_that_is_absent_is_named_with_its_line(command: Command, capsys: pytest.CaptureFixture[str], name: str) -> None:
    append_result(command.results, {key: value for key, value in record(Row("grpo", "grpo"), 0, 0.8).items() if key != name})
    assert command("--table") == 2
    assert capsys.readouterr().err == (f"error: {command.results}, line 1: not a result of bench-algorithms (no {name}); remove the line\n")


@pytest.mark.parametrize("line", [b"\xff\xfe", b"\x00" * 20, b"[" * 100_000, b'{"bench": "1.1", "base": 0.4{"bench"'])
def test_a_line_that_is_no_text_is_named(command: Command, capsys: pytest.CaptureFixture[str], line: bytes) -> None:
    command.results.write_bytes(line + b"\n")
    assert command("--table") == 2
    assert f"{command.results}, line 1: not a result of bench-algorithms (no JSON)" in capsys.readouterr().err


def test_results_that_cannot_be_read_are_one_sentence(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    command.results.mkdir()
    assert command() == 2
    assert capsys.readouterr().err.endswith(f"error: {command.results} cannot be read (Is a directory); name another file with --results\n")


# --- verdicts and the table


@pytest.mark.parametrize(
    ("finals", "verdict"),
    [
        ((0.5, 0.55, 0.6), "passes"),  # a mean gain of exactly 0.15
        ((0.5, 0.55, 0.59), "gain under 0.15"),
        ((0.9, 0.9, 0.1), "passes"),  # the mean decides
        ((0.3, 0.3, 0.3), "gain under 0.15 and not above the control"),
    ],
)
def test_both_bars(finals: tuple[float, ...], verdict: str) -> None:
    assert verdicts(*of_all_seeds(Row("grpo", "grpo"), *finals), *COIN) == {"grpo": verdict, CONTROL: "control"}


def test_a_control_that_learns_is_a_bar() -> None:
    learned = of_all_seeds(COIN_ROW, 0.9, 0.9, 0.9)
    assert verdicts(*of_all_seeds(Row("grpo", "grpo"), 0.8, 0.8, 0.8), *learned)["grpo"] == "not above the control"


def test_no_verdict_before_all_seeds_and_the_control_are_there() -> None:
    grpo = of_all_seeds(Row("grpo", "grpo"), 0.9, 0.9, 0.9)
    assert verdicts(*grpo[:2], *COIN)["grpo"] == "2 of 3 seeds"
    assert verdicts(*grpo, *COIN[:2])["grpo"] == "no control yet"


def test_results_of_other_settings_do_not_count() -> None:
    row = Row("grpo", "grpo")
    assert lines_of([record(row, 0, 0.9, bench="0"), record(row, 1, 0.9, overrides={"a.b": 1}), record(row, 7, 0.9)]) == []


def test_the_table_to_the_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.algorithms_table.LEARNING_RATE", {"rloo": (1e-4, "it is a test"), "absent": (1.0, "not shown")})
    stale = [record(Row("grpo", "grpo", 2), seed, 0.9, lag=1.26) for seed in SEEDS]
    rloo = [record(Row("rloo", "rloo"), seed, 0.5 + seed / 10, base=0.44, learning_rate=1e-4) for seed in SEEDS]
    decoupled = [record(Row("grpo + decoupled", "grpo", 2), 0, 0.8)]
    text = table_text(lines_of([*COIN, *decoupled, *rloo, *stale, *of_all_seeds(Row("grpo", "grpo"), 0.8, 0.8, 0.8)]))
    assert [line for line in text.splitlines() if line.startswith("|")] == [
        "| recipe | max_staleness | mean lag | learning rate | base | final | gain | gain, min to max | CPU seconds | verdict | commit |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---|---|",
        "| `grpo` | 0 | 0.0 | 0.0004 | 0.400 | 0.800 | +0.400 | +0.400 to +0.400 | 11 | passes | `1234567` |",
        "| `grpo` | 2 | 1.3 | 0.0004 | 0.400 | 0.900 | +0.500 | +0.500 to +0.500 | 11 | passes | `1234567` |",
        "| `rloo` | 0 | 0.0 | 0.0001 | 0.440 | 0.600 | +0.160 | +0.060 to +0.260 | 11 | passes | `1234567` |",
        "| `grpo + decoupled` | 2 | 0.0 | 0.0004 | 0.400 | 0.800 | +0.400 | +0.400 to +0.400 | 11 | 1 of 3 seeds | `1234567` |",
        "| *random reward* | 0 | 0.0 | 0.0004 | 0.400 | 0.300 | -0.100 | -0.100 to -0.100 | 11 | control | `1234567` |",
    ]
    assert text.endswith("\n\nLearning rate of `rloo`: it is a test.")
    assert "make bench-algorithms" in table_text([])


def test_only_what_is_between_the_markers_changes(tmp_path: Path) -> None:
    page = tmp_path / "docs" / "explanation" / "recipes.md"
    write_page(page, "one")
    head, tail = "# Mine\r\n\nöäü\n", "\n## After\n"
    page.write_bytes((head + page.read_text().removeprefix("# Algorithms\n") + tail).encode())
    before = page.read_bytes()
    write_page(page, "two\n| a |")
    assert page.read_bytes() == before.replace(b"\none\n", b"\ntwo\n| a |\n")
    write_page(page, "one")
    assert page.read_bytes() == before


@pytest.mark.parametrize("text", ["# no markers\n", "<!-- bench-algorithms: end -->\n<!-- bench-algorithms: begin -->\n"])
def test_a_page_without_a_place_for_the_table_is_refused_before_anything_runs(tmp_path: Path, text: str, command: Command) -> None:
    command.page.write_text(text)
    assert command("--only", "grpo") == 2
    assert (command.made, command.page.read_text()) == ([], text)


def test_the_committed_page_has_the_place() -> None:
    algorithms.split_page(algorithms.PAGE)


# --- the command, its training replaced


class Command:
    """``python -m benchmarks.algorithms`` with two recipes; ``outcome`` gives the final accuracy of a run, or raises."""

    def __init__(self, folder: Path) -> None:
        self.results, self.page = folder / "results.jsonl", folder / "page.md"
        self.made: list[str] = []
        self.source = SOURCE
        self.outcome: Callable[[Run], float] = lambda run: 0.3 if run.row.label == CONTROL else 0.9

    def train(self, run: Run, assets: Path, children: Any) -> dict[str, Any]:
        self.made.append(str(run))
        made = record(run.row, run.seed, self.outcome(run))
        return {name: value for name, value in made.items() if name not in MADE_WITH}

    def __call__(self, *words: str) -> int:
        self.made.clear()
        return algorithms.main([*words, "--results", str(self.results), "--page", str(self.page)])


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    made = Command(tmp_path)
    monkeypatch.setattr(algorithms, "train", made.train)
    monkeypatch.setattr(algorithms, "read_source", lambda root: made.source)
    monkeypatch.setattr(algorithms, "refuse_foreign", lambda root, modules: None)  # other tests load plugins that they made
    monkeypatch.setattr(algorithms, "prepare", lambda folder, seed, report: None)
    monkeypatch.setattr(algorithms, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(Registry, "names", lambda self, kind: list(RECIPES))
    return made


def last_line(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return json.loads(capsys.readouterr().out.splitlines()[-1])  # type: ignore[no-any-return]


def test_a_whole_sweep_passes_and_a_second_one_runs_nothing(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--jobs", "3") == 0
    assert len(command.made) == 3 * (3 + 1 + 1 + 2 * len(CORRECTED))
    figures = last_line(capsys)
    assert (figures["all_pass"], figures["complete"], len(figures["rows"])) == (True, True, 5 + 2 * len(CORRECTED))
    page = command.page.read_text()
    assert "| `newcomer` | 0 |" in page
    assert command() == 0
    assert (command.made, command.page.read_text()) == ([], page)


def test_a_sweep_that_was_stopped_goes_on_where_it_was(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    def stops(run: Run) -> float:
        if (run.row.label, run.seed) == ("newcomer", 1):
            raise KeyboardInterrupt
        return 0.9

    command.outcome = stops
    assert command("--only", "newcomer", CONTROL) == 130
    assert "goes on from there" in capsys.readouterr().err
    assert len(read_results(command.results)[0]) == 4
    command.outcome = lambda run: 0.9
    assert command("--only", "newcomer", CONTROL) == 1  # a control at 0.9 is a bar that 0.9 does not clear
    assert command.made == ["newcomer, staleness 0, seed 1", "newcomer, staleness 0, seed 2"]


def test_what_is_refused_or_breaks_off_is_told_and_not_recorded(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(run: Run) -> float:
        if run.row.staleness == 2:
            raise UsageError("no such setting")
        if run.row.staleness == 8:
            raise RunError("out of prompts")
        return 0.9

    command.outcome = fails
    assert command("--only", "grpo") == 1
    figures = last_line(capsys)
    assert figures["refused"] == {f"grpo, staleness 2, seed {seed}": "no such setting" for seed in SEEDS}
    assert figures["failed"] == {f"grpo, staleness 8, seed {seed}": "out of prompts" for seed in SEEDS}
    assert [(row["seeds"], row["verdict"]) for row in figures["rows"]] == [(3, "no control yet"), (0, "not run"), (0, "not run")]
    assert {item["staleness"] for item in read_results(command.results)[0]} == {0}
    assert figures["complete"] is False


def test_again_makes_the_label_anew_and_the_new_result_counts(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    command("--only", "newcomer", CONTROL)
    command.outcome = lambda run: 0.5
    assert command("--only", "newcomer", CONTROL, "--again", "newcomer") == 1
    assert command.made == [f"newcomer, staleness 0, seed {seed}" for seed in SEEDS]
    row = last_line(capsys)["rows"][0]
    assert (row["label"], row["seeds"], row["base"], row["final"], row["gain"]) == ("newcomer", 3, 0.4, 0.5, 0.1)
    assert row["verdict"] == "gain under 0.15"


def test_a_weak_row_fails_the_command(command: Command) -> None:
    command.outcome = lambda run: 0.45 if run.row.label == "newcomer" else 0.3 if run.row.label == CONTROL else 0.9
    assert command() == 1


def test_table_runs_nothing(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    command("--only", CONTROL)
    assert command("--table") == 1
    assert command.made == []
    verdicts = [row["verdict"] for row in last_line(capsys)["rows"]]
    assert verdicts == ["not run"] * (4 + 2 * len(CORRECTED)) + ["control"]


def test_table_without_results_leaves_the_page(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    command("--only", CONTROL)
    command.results.unlink()
    page = command.page.read_bytes()
    assert command("--table") == 2
    assert f"{command.results} holds no results, so {command.page} is left as it is" in capsys.readouterr().err
    assert command.page.read_bytes() == page


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--only", "gRPo2"], "--only 'gRPo2' is not a label of the table; choose from grpo, newcomer, "),
        (["--only", "grpo", "--again", "newcomer"], "--again 'newcomer' is not a label of the table; choose from grpo"),
    ],
)
def test_an_unknown_label_is_refused(command: Command, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str) -> None:
    assert command(*words) == 2
    assert capsys.readouterr().err.startswith(f"error: {sentence}")
    assert command.made == []


@pytest.mark.parametrize("words", [["--jobs", "0"], ["--jobs", "x"], ["--table", "--again", "grpo"], ["--no-such-flag"]])
def test_bad_usage_exits_with_2(command: Command, words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command(*words)
    assert ended.value.code == 2
