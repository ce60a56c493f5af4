"""Plugins that are nearly right: each mistake that an author makes is told in one sentence that blames the plugin, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlcore.api import PluginError, RewardSpec
from rlcore.testing import PluginFolder, RunTester

HEAD = 'from rlcore.api import *\nrlcore_api = "2.0"\n\n'
ADVICE = "write [project.entry-points.rlcore] into its pyproject.toml and install it again"
JUDGE = "from rlcore.api import *\n\nclass Judge(Reward):\n    {body}\n    def score(self, item):\n        return Score(value=1.0)\n"
OPTIONS = (
    "from pydantic import BaseModel, ConfigDict\n\nclass {name}(BaseModel):\n    model_config = ConfigDict(extra='forbid', frozen=True)\n\n"
)


def hooks(**specs: str) -> str:
    """The source of a plugin that offers these specs, by what the hook is called after ``rlcore_register_``."""
    return HEAD + "".join(f"@hookimpl\ndef rlcore_register_{what}():\n    return [{spec}]\n\n" for what, spec in specs.items())


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    """Sees the plugins of its own folder alone."""
    return RunTester(tmp_path, in_process=True).with_only().with_fakes()


def listed(tester: RunTester, *flags: str) -> dict[str, dict[str, object]]:
    """What ``rlcore plugins --json`` says of each distribution."""
    return {row["distribution"]: row for row in json.loads(tester.run("plugins", "--json", *flags).stdout)["plugins"]}


def sound(tester: RunTester) -> None:
    """A plugin without a fault."""
    spec = 'RewardSpec(name="sound", target="rlcore_plugin_sound.judge:Judge", summary="A reward", requires=("gold",))'
    tester.plugins.install("sound", hooks(rewards=spec), files={"judge.py": JUDGE.format(body='requires = ("gold",)')})


# --- entry points ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", ["rlcore.plugins", "rlcore_plugins", "rlcore.rewards", "rlcore-plugin", "Rlcore"])
def test_an_entry_point_in_another_group_is_told(tester: RunTester, group: str) -> None:
    tester.plugins.install("acme", hooks(rewards=""), distribution="acme-rewards", group=group)
    row = listed(tester)["acme-rewards"]
    assert row["status"] == "broken"
    assert row["problems"] == [f"its entry point is in the group {group!r}, which rlcore does not read; {ADVICE}"]
    tester.with_only("rlcore-plugin-tools")
    for words in (["show", "reward", "acme"], ["acme"], ["train", tester.fake_run(), "-rt", "acme"]):
        tester.run(*words).assert_refused("broken: acme-rewards, see rlcore plugins")


def test_a_distribution_that_is_named_like_a_plugin_and_has_no_entry_point_is_told(tester: RunTester) -> None:
    tester.plugins.install("acme", group="")
    row = listed(tester)["rlcore-plugin-acme"]
    assert row["status"] == "broken"
    assert row["problems"] == [f"it has no entry point; {ADVICE}"]
    assert tester.run("plugins", "--strict").exit_code == 1


@pytest.mark.parametrize("requires", ["rlcore", "rlcore>=0.1", "rlcore[models] (>=0.1)", "rlcore ; python_version > '3'"])
def test_a_distribution_that_requires_rlcore_and_has_no_entry_point_is_remarked_upon(tester: RunTester, requires: str) -> None:
    tester.plugins.install("acme", distribution="acme-training", group="", requires=[requires])
    said = f"acme-training requires rlcore and has no entry point; if it is intended as a plugin, {ADVICE}"
    said += '; if it is a library for plugins, write keywords = ["rlcore-library"] into its [project]'
    assert json.loads(tester.run("plugins", "--json").stdout)["notes"] == [said]
    assert tester.run("plugins", "--strict").assert_ok().lines[-1] == said
    tester.with_only("rlcore-plugin-tools")
    tester.run("show", "reward", "acme").assert_refused("there is no reward 'acme'", said)


@pytest.mark.parametrize("requires", [["numpy"], ["rlcore-plugin-math"], ["rlcore; extra == 'train'"], ["rlcoreutils"]])
def test_other_distributions_are_left_alone(tester: RunTester, requires: list[str]) -> None:
    tester.plugins.install("acme", distribution="acme-training", group="console_scripts", requires=requires)
    found = json.loads(tester.run("plugins", "--json").stdout)
    assert "acme-training" not in json.dumps(found)


def test_a_library_that_says_that_it_is_one_needs_no_entry_point(tester: RunTester) -> None:
    tester.plugins.install("acme", group="", requires=["rlcore"])
    (metadata,) = tester.plugins.root.glob("rlcore_plugin_acme-*.dist-info/METADATA")
    metadata.write_text(f"{metadata.read_text()}Keywords: agents,rlcore-library\n")
    assert "acme" not in tester.run("plugins", "--json").assert_ok().stdout


# --- broken plugins ----------------------------------------------------------------------------------------------------


BROKEN = {
    "hook": (HEAD + "@hookimpl\ndef rlcore_register_reward():\n    return []\n", "", "rlcore_register_reward is not a hook of rlcore"),
    "bare_hook": (HEAD + "def register_rewards():\n    return []\n", "", "did you mean 'rlcore_register_rewards'"),
    "module": (hooks(rewards='RewardSpec(name="x", target="rlcore_plugin_acme.no:Judge", summary="s")'), "", "there is no module"),
    "letters": (
        hooks(rewards='RewardSpec(name="x", target="a:b", summary="s", requires="gold")'),
        "",
        "requires is 'gold', it must be a tuple of strings such as ('gold',)",
    ),
    "deadline": (
        hooks(rewards='RewardSpec(name="x", target="a:b", summary="s", deadline=-3)'),
        "",
        "RewardSpec 'x': deadline is -3, it must be a number of seconds above 0",
    ),
    "never": (
        hooks(rewards='RewardSpec(name="x", target="a:b", summary="s", deadline=float("nan"))'),
        "",
        "RewardSpec 'x': deadline is nan, it must be a number of seconds above 0",
    ),
    "none_in_list": (hooks(rewards="None"), "", "rlcore_register_rewards returned a NoneType in its list, every item must be RewardSpec"),
    "recipe_loss": (
        hooks(algorithms='AlgorithmSpec(name="x", summary="s", estimator="group_norm", loss="cliped")'),
        "",
        "algorithm 'x' of rlcore-plugin-acme: there is no loss 'cliped', did you mean 'clipped'",
    ),
    "recipe_option": (
        hooks(
            algorithms='AlgorithmSpec(name="x", summary="s", estimator="group_norm", loss="clipped",'
            ' defaults={"algorithm.options.clip_eps_hihg": (0.3, "s")})'
        ),
        "",
        "algorithm 'x' of rlcore-plugin-acme sets the option clip_eps_hihg, which neither its estimator group_norm nor its loss clipped "
        "has, did you mean 'clip_eps_high'",
    ),
    "recipe_setting": (
        hooks(
            algorithms='AlgorithmSpec(name="x", summary="s", estimator="group_norm", loss="clipped",'
            ' defaults={"algorithm.kl_coef": (0.3, "s")})'
        ),
        "",
        "algorithm 'x' of rlcore-plugin-acme sets algorithm.kl_coef, which is not a setting of rlcore, did you mean 'algorithm.kl_coeff'",
    ),
    "recipe_table": (
        hooks(
            algorithms='AlgorithmSpec(name="x", summary="s", estimator="group_norm", loss="clipped",'
            ' defaults={"algoritm.options.clip_eps_high": (0.3, "s")})'
        ),
        "",
        "algorithm 'x' of rlcore-plugin-acme sets algoritm.options.clip_eps_high, which is not a setting of rlcore",
    ),
}
ONLY_STRICT = {
    "attribute": ("Jugde", "", "its target 'rlcore_plugin_acme.judge:Jugde' does not exist, did you mean 'Judge'"),
    "no_class": ("NUMBER", "", "is of type int, it must be a class derived from rlcore.api.Reward"),
    "other_class": ("Other", "", "is the class Other, it must be a class derived from rlcore.api.Reward"),
    "requires": ("Judge", 'requires = ("gold",)', "requires is ('gold',) on its class and () in its spec; they must agree"),
    "accuracy": ("Judge", "gives_accuracy = False", "gives_accuracy is False on its class and True in its spec; they must agree"),
    "options": (
        "Judge",
        "from rlcore_plugin_acme.options import Options",
        "Options of its class is rlcore_plugin_acme.options:Options, but config of its spec names nothing; they must agree",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_broken_plugin_has_a_line_and_strict_exits_1(tester: RunTester, name: str) -> None:
    source, judge, said = BROKEN[name]
    sound(tester)
    assert tester.run("plugins", "--strict").exit_code == 0
    tester.plugins.install("acme", source, files={"judge.py": judge})
    for flags in ([], ["--strict"]):
        done = tester.run("plugins", *flags)
        assert sum("failed:" in line for line in done.lines) == 1
        assert said in " ".join(" ".join(done.lines).split())  # the table folds
        assert done.exit_code == len(flags)
    assert listed(tester)["rlcore-plugin-sound"]["status"] == "ok"


@pytest.mark.parametrize("name", ONLY_STRICT)
def test_what_an_import_alone_can_show_is_told_by_strict(tester: RunTester, name: str) -> None:
    target, body, said = ONLY_STRICT[name]
    spec = f'RewardSpec(name="x", target="rlcore_plugin_acme.judge:{target}", summary="s")'
    files = {"judge.py": JUDGE.format(body=body) + "\nNUMBER = 3\nclass Other: ...\n", "options.py": OPTIONS.format(name="Options")}
    tester.plugins.install("acme", hooks(rewards=spec), files=files)
    assert listed(tester)["rlcore-plugin-acme"]["status"] == "ok"
    (problem,) = listed(tester, "--strict")["rlcore-plugin-acme"]["problems"]  # type: ignore[misc]
    assert problem.startswith("reward 'x' of rlcore-plugin-acme: ")
    assert problem.endswith(said)
    assert tester.run("plugins", "--strict").exit_code == 1


def test_strict_exits_1_if_two_plugins_claim_a_name(tester: RunTester) -> None:
    for name in ("one", "two"):
        spec = 'RewardSpec(name="x", target="rlcore_plugin_one.judge:Judge", summary="s")'
        tester.plugins.install(name, hooks(rewards=spec), files={"judge.py": JUDGE.format(body="")})
    assert "registered by" in tester.run("plugins").assert_ok().stdout
    assert tester.run("plugins", "--strict").exit_code == 1


def test_strict_leaves_a_backend_alone_whose_engine_is_not_installed(tester: RunTester) -> None:
    spec = 'TrainingBackendSpec(name="x", target="rlcore_plugin_acme.engine:X", summary="s", requires_module="no_such_engine")'
    tester.plugins.install("acme", hooks(training_backends=spec), files={"engine.py": "import no_such_engine\n"})
    tester.run("plugins", "--strict").assert_ok()


# --- a class and its spec ----------------------------------------------------------------------------------------------


def test_a_reward_whose_class_and_spec_disagree_is_refused_before_the_run(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    spec = 'RewardSpec(name="x", target="rlcore_plugin_acme.judge:Judge", summary="s", requires=("gt_answer",))'
    tester.plugins.install("acme", hooks(rewards=spec), files={"judge.py": JUDGE.format(body='requires = ("gold",)')})
    said = "reward 'x' of rlcore-plugin-acme: requires is ('gold',) on its class and ('gt_answer',) in its spec; they must agree"
    done = tester.run("train", tester.fake_run(), "-rt", "x")
    assert said in done.stderr
    assert done.exit_code == 2, done


@pytest.mark.parametrize(
    ("body", "agrees"),
    [
        ('requires = ("b", "a")', True),
        ("def __init__(self):\n        self.requires = ('column',)  # which an option names", True),
        ('requires = ("a",)', False),
    ],
)
def test_a_class_that_leaves_it_open_or_says_the_same_agrees(tmp_path: Path, body: str, agrees: bool) -> None:
    spec = 'RewardSpec(name="x", target="rlcore_plugin_acme.judge:Judge", summary="s", requires=("a", "b"))'
    with PluginFolder(tmp_path / "site") as plugins:
        plugins.install("acme", hooks(rewards=spec), files={"judge.py": JUDGE.format(body=body)})
        registry = plugins.discover()
        if agrees:
            assert registry.load("reward", "x")() is not None
        else:
            with pytest.raises(PluginError, match="they must agree"):
                registry.load("reward", "x")


def test_options_of_another_class_than_the_spec_names_are_refused(tmp_path: Path) -> None:
    spec = 'RewardSpec(name="x", target="rlcore_plugin_acme.judge:Judge", summary="s", config="rlcore_plugin_acme.options:Theirs")'
    files = {
        "options.py": OPTIONS.format(name="Options") + OPTIONS.format(name="Theirs"),
        "judge.py": JUDGE.format(body="from rlcore_plugin_acme.options import Options"),
    }
    with PluginFolder(tmp_path / "site") as plugins:
        plugins.install("acme", hooks(rewards=spec), files=files)
        with pytest.raises(
            PluginError, match=r"Options of its class is .*:Options, but config of its spec names .*:Theirs; they must agree"
        ):
            plugins.discover().load("reward", "x")


def test_the_deadline_of_a_spec_is_above_0() -> None:
    for deadline in (0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="it must be a number of seconds above 0"):
            RewardSpec(name="x", target="a:b", summary="s", deadline=deadline)
    assert RewardSpec(name="x", target="a:b", summary="s", deadline=0.5).deadline == 0.5


def test_a_negative_deadline_of_the_user_is_refused(tester: RunTester) -> None:
    tester.run("train", tester.fake_run(), "--reward-deadline", "-3").assert_refused("must be a finite number above 0")


# --- what a plugin prints ----------------------------------------------------------------------------------------------

LOUD = """
import os, subprocess, sys
from rlcore.api import *

rlcore_api = "2.0"
print("loud import")
os.write(1, b"loud write\\n")
subprocess.run([sys.executable, "-c", "print('loud program')"])

@hookimpl
def rlcore_register_rewards():
    print("loud hook")
    return [RewardSpec(name="loud", target="rlcore_plugin_loud.judge:Judge", summary="s", config="rlcore_plugin_loud.judge:Options")]

@hookimpl
def rlcore_register_trackers():
    return [TrackerSpec(name="loud", target="rlcore_plugin_loud.judge:Loud", summary="s")]

@hookimpl
def rlcore_check_run(config):
    print("loud check")
    return []

@hookimpl
def rlcore_step_finished(step, metrics):
    print("loud step")
"""
LOUD_JUDGE = (
    "print('loud module')\n"
    + OPTIONS.format(name="Options")
    + """
from rlcore.api import *

class Judge(Reward):
    def __init__(self, options):
        print("loud reward")

    def score(self, item):
        print("loud score")
        return Score(value=1.0)

class Loud(Tracker):
    def __init__(self):
        print("loud tracker")

    def open(self, run):
        print("loud open")

    def log(self, record):
        print("loud record")
"""
)


@pytest.mark.parametrize(
    "words",
    [
        ["plugins", "--json"],
        ["plugins", "--strict", "--json"],
        ["show", "reward", "loud", "--json"],
        ["show", "config", "run.toml", "--json"],
        ["train", "run.toml", "-rt", "loud", "--trackers", "loud", "--dry-run", "--json"],
        ["train", "run.toml", "-rt", "loud", "--trackers", "loud", "--max-steps", "1", "--json"],
        ["train", "run.toml", "-rt", "absent", "--json"],
        ["score", "rows.jsonl", "-rt", "loud", "--json"],
        ["audit", "loud", "--data", "rows.jsonl", "--json"],
        ["plan", "--json"],
    ],
    ids=" ".join,
)
def test_what_a_plugin_prints_does_not_stand_beside_the_json(tmp_path: Path, words: list[str]) -> None:
    tester = RunTester(tmp_path).with_fakes()
    tester.plugins.install("loud", LOUD, files={"judge.py": LOUD_JUDGE})
    tester.fake_run()
    tester.write_jsonl("rows.jsonl", [{"messages": {"role": "user", "content": "a"}, "gt_answer": "a", "completion": "a"}])
    others = {"RLCORE_PLUGINS": "loud"} if "--strict" in words else {}  # to import every target of all others takes seconds
    done = tester.run(*words, env=others)
    assert isinstance(json.loads(done.stdout), dict), done
    assert "loud" not in [word for line in done.lines for word in line.split()][:1]
    for line in ("loud import", "loud write", "loud program"):
        assert line in done.stderr


def test_a_terminal_sees_what_a_plugin_prints_on_standard_error(tmp_path: Path) -> None:
    tester = RunTester(tmp_path)
    tester.plugins.install("loud", LOUD, files={"judge.py": LOUD_JUDGE})
    done = tester.run("show", "reward", "loud").assert_ok()
    assert done.stderr.splitlines() == ["loud import", "loud write", "loud program", "loud hook", "loud module"]
    assert done.lines[0].startswith("reward loud")


# --- -p no:NAME --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sound", "Sound", "rlcore-plugin-sound", "rlcore_plugin_sound"])
def test_p_no_name_keeps_a_plugin_out_of_one_command(tester: RunTester, name: str) -> None:
    sound(tester)
    tester.with_only("rlcore-plugin-tools")
    tester.run("show", "reward", "sound").assert_ok()
    switch = f"-p no:{name.lower().replace('_', '-')}"
    tester.run("-p", f"no:{name}", "show", "reward", "sound").assert_refused("switched off: rlcore-plugin-sound")
    assert f"switched off by {switch}" in tester.run("-p", f"no:{name}", "plugins").assert_ok().stdout
    tester.run("show", "reward", "sound").assert_ok()


def test_several_switches_stand_beside_the_variable(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two", "three"):
        tester.plugins.install(name)
    monkeypatch.setenv("RLCORE_DISABLE", "one")
    found = json.loads(tester.run("-p", "no:two", "-p", "no:three", "plugins", "--json").stdout)
    by = {row["entry_point"]: row["disabled_by"] for row in found["plugins"]}
    assert by == {"builtin": "", "fakes": "", "one": "RLCORE_DISABLE", "two": "-p no:two", "three": "-p no:three"}
    assert found["notes"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-p", "no:sund", "plugins"], "not 'no:sund', did you mean 'sound'"),
        (["-p", "sound", "plugins"], "not 'sound'"),
        (["-p", "no:rlcore", "--help"], "not 'no:rlcore'"),
        (["-p"], "not ''"),
    ],
)
def test_a_switch_that_names_no_installed_plugin_is_refused(tester: RunTester, words: list[str], said: str) -> None:
    sound(tester)
    tester.run(*words).assert_refused(f"rlcore -p takes no:NAME with the name of an installed plugin, {said}")


def test_the_help_knows_the_switch_and_obeys_it(tester: RunTester) -> None:
    spec = 'CommandSpec(name="acme", summary="ACME", target="rlcore_plugin_acme:Acme")'
    tester.plugins.install("acme", hooks(commands=spec))
    assert "rlcore -p no:NAME COMMAND" in tester.run("--help").stdout
    assert "ACME" in tester.run("--help").stdout
    assert "ACME" not in tester.run("-p", "no:acme", "--help").stdout


def test_processes_that_a_command_starts_obey_the_switch(tmp_path: Path) -> None:
    """A plugin that would end every process that imports it."""
    tester = RunTester(tmp_path).with_fakes()
    tester.plugins.install("fatal", "import os\nos._exit(7)\n")
    run = tester.fake_run(run={"max_steps": 1})
    assert tester.run("train", run).exit_code == 7
    tester.run("-p", "no:fatal", "train", run).assert_ok()


def test_a_plan_names_a_broken_plugin_that_the_run_does_not_use(tester: RunTester) -> None:
    path = tester.fake_run()
    tester.plugins.install("acme", "import no_such_module\n")
    planned = tester.run("train", path, "--dry-run").assert_ok().stdout
    assert "plugin rlcore-plugin-acme is installed but broken, so the run does not use it: importing rlcore_plugin_acme raised" in planned
