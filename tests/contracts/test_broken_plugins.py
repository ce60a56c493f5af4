"""The zoo: every way a plugin can be broken that we know of. The host works, and ``rlcore plugins`` says why, for each."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rlcore.api import PluginError
from rlcore.cli.plugins import describe
from rlcore.registry.install import install_line
from rlcore.registry.plugin_registry import Registry
from rlcore.testing.plugin_folder import PluginFolder

HEAD = 'from rlcore.api import *\nrlcore_api = "2.0"\n\n'


def _rewards(body: str) -> str:
    return f"{HEAD}@hookimpl\ndef rlcore_register_rewards():\n    {body}\n"


def _offering(what: str, spec: str) -> str:
    """A plugin whose only hook returns one spec."""
    return f"{HEAD}from rlcore.api import {spec.partition('(')[0]}\n\n@hookimpl\ndef rlcore_register_{what}():\n    return [{spec}]\n"


def _reward(name: str, target: str = "rlcore_plugin_sound.judge:Judge", config: str = "") -> str:
    return f'RewardSpec(name="{name}", summary="A reward", target="{target}", config="{config}")'


def _offers(name: str, target: str, config: str = "") -> str:
    return _rewards(f"return [{_reward(name, target, config)}]")


@dataclass(frozen=True)
class Broken:
    """A plugin's source, and words that the explanation must hold; ``keeps``: rewards that work all the same."""

    source: str
    why: tuple[str, ...]
    keeps: tuple[str, ...] = ()
    target: str | None = None
    files: dict[str, str] = field(default_factory=dict)


ZOO = {
    "syntax": Broken("def broken(:\n", ("SyntaxError", "__init__.py, line 1")),
    "missing_module": Broken("import no_such_module\n", ("ModuleNotFoundError", "no_such_module", "line 1")),
    "panics": Broken("raise BaseException('panic')\n", ("BaseException: panic", "line 1")),
    "exits": Broken("import sys\nsys.exit('no licence')\n", ("SystemExit: no licence", "line 2")),
    "misspelt": Broken(
        f"{HEAD}@hookimpl\ndef rlcore_register_reward():\n    return []\n",
        ("rlcore_register_reward is not a hook", "did you mean 'rlcore_register_rewards'"),
    ),
    "misspelt_undecorated": Broken(
        f"{HEAD}def rlcore_chek_run(config):\n    return []\n", ("rlcore_chek_run is not a hook", "'rlcore_check_run'")
    ),
    "unprefixed": Broken(f"{HEAD}@hookimpl\ndef register_rewards():\n    return []\n", ("register_rewards is not a hook",)),
    "undecorated": Broken(f"{HEAD}def rlcore_register_rewards():\n    return []\n", ("lacks the @hookimpl decorator",)),
    "signature": Broken(
        f"{HEAD}@hookimpl\ndef rlcore_check_run(settings):\n    return []\n",
        ("does not fit its specification", "rlcore_check_run", "settings"),
    ),
    "older_major": Broken(
        'rlcore_api = "1.0"\n', ("written for API 1.0 and this rlcore offers 2.0; install a newer release of the plugin",)
    ),
    "older_major_that_imports_what_is_gone": Broken(
        'from rlcore.api import Which\n\nrlcore_api = "1.4"\n',
        ("written for API 1.4 and this rlcore offers 2.0; install a newer release of the plugin",),
    ),
    "this_major_that_imports_what_is_not_there": Broken(
        'from rlcore.api import Which\n\nrlcore_api = "2.0"\n', ("ImportError: cannot import name 'Which'",)
    ),
    "newer_major": Broken('rlcore_api = "3.0"\n', ("written for API 3.0 and this rlcore offers 2.0", install_line("rlcore", upgrade=True))),
    "newer_minor": Broken('rlcore_api = "2.99"\n', ("written for API 2.99", install_line("rlcore", upgrade=True))),
    "no_api": Broken("x = 1\n", ("does not say which API", 'rlcore_api = "2.0"')),
    "junk_api": Broken("rlcore_api = 1\n", ("rlcore_api is 1", "major.minor")),
    "raises": Broken(_rewards("raise KeyError('x')"), ("rlcore_register_rewards raised KeyError", "line 6")),
    "panics_in_hook": Broken(_rewards("raise BaseException('panic')"), ("rlcore_register_rewards raised BaseException: panic",)),
    "exits_in_hook": Broken(_rewards("raise SystemExit(1)"), ("rlcore_register_rewards raised SystemExit",)),
    "returns_none": Broken(_rewards("pass"), ("returned None, it must return a list of RewardSpec",)),
    "returns_dict": Broken(_rewards("return {}"), ("returned a dict, it must return a list of RewardSpec",)),
    "yields": Broken(_rewards(f"yield {_reward('never')}"), ("returned a generator",)),
    "returns_one": Broken(_rewards(f"return {_reward('never')}"), ("returned a RewardSpec, it must return a list",)),
    "wrong_spec": Broken(
        _rewards('return [LossSpec(name="x", target="a:b", summary="A loss")]'),
        ("returned a LossSpec in its list", "every item must be RewardSpec"),
    ),
    "bad_name": Broken(_rewards("return [" + _reward("Bad Name") + "]"), ("raised ValueError", "use lower-case letters")),
    "letters": Broken(
        _rewards('return [RewardSpec(name="x", target="a:b", summary="A reward", requires="gold")]'),
        ("raised ValueError", "requires is 'gold', it must be a tuple of strings such as ('gold',)"),
    ),
    "level": Broken(
        f"{HEAD}@hookimpl\ndef rlcore_register_sandboxes():\n"
        "    return [SandboxSpec(name='x', target='a:b', summary='', levels=('walls',))]\n",
        ("raised ValueError", "SandboxSpec 'x': levels holds 'walls', it may hold namespaces, landlock, remote, none"),
    ),
    "setting": Broken(
        f"{HEAD}@hookimpl\ndef rlcore_register_runtimes():\n"
        "    return [RuntimeSpec(name='x', target='a:b', summary='', settings=('run.seed',))]\n",
        ("raised ValueError", "RuntimeSpec 'x': settings holds 'run.seed', it may hold run.master_address, "),
    ),
    "place": Broken(
        f"{HEAD}@hookimpl\ndef rlcore_register_commands():\n    return [CommandSpec(name='x', target='a:b', summary='', position='1')]\n",
        ("raised ValueError", "position is '1', it must be a whole number"),
    ),
    "half": Broken(
        _rewards(f"return [{_reward('half')}]") + "\n@hookimpl\ndef rlcore_register_losses():\n    return 3\n",
        ("rlcore_register_losses returned an int",),
        keeps=("half",),
    ),
    "attribute_entry": Broken(HEAD, ("must name a module",), target="rlcore_plugin_attribute_entry:plugin"),
    "no_module": Broken(HEAD, ("No module named 'rlcore_plugin_none'",), target="rlcore_plugin_none"),
    "no_target_module": Broken(
        _offers("lost", "rlcore_plugin_no_target_module.nowhere:Judge"),
        ("'rlcore_plugin_no_target_module.nowhere:Judge' does not exist",),
        keeps=("lost",),
    ),
    "no_target": Broken(
        _offers("absent", "rlcore_plugin_no_target:Jugde") + "class Judge: pass\n",
        ("does not exist, did you mean 'Judge'",),
        keeps=("absent",),
    ),
    "no_model": Broken(
        _offers("dictionary", "rlcore_plugin_no_model.judge:Judge", "rlcore_plugin_no_model.judge:Options"),
        ("options model 'rlcore_plugin_no_model.judge:Options' is not a pydantic BaseModel",),
        keeps=("dictionary",),
        files={"judge.py": "class Judge: pass\nclass Options(dict): pass\n"},
    ),
    "number_for_a_prefix": Broken(
        _offering("data_sources", 'DataSourceSpec(name="a", target="m:x", summary="s", prefix=3)'),
        ("rlcore_register_data_sources raised ValueError: DataSourceSpec 'a': prefix is 3, it must be a string",),
    ),
    "number_for_a_module": Broken(
        _offering("runtimes", 'RuntimeSpec(name="a", target="m:x", summary="s", requires_module=3)'),
        ("RuntimeSpec 'a': requires_module is 3, it must be a string",),
    ),
    "number_for_a_name": Broken(
        _offering("runtimes", 'RuntimeSpec(name=3, target="m:x", summary="s")'), ("RuntimeSpec 3: name is 3, it must be a string",)
    ),
    "no_summary": Broken(
        _offering("trackers", 'TrackerSpec(name="a", target="m:x", summary=None)'),
        ("TrackerSpec 'a': summary is None, it must be a string",),
    ),
    "summary_of_two_lines": Broken(
        _offering("commands", 'CommandSpec(name="a", target="m:x", summary="two\\nlines")'),
        ("CommandSpec 'a': summary has a line break, it must be one line",),
    ),
    "empty_target": Broken(
        _offering("trackers", 'TrackerSpec(name="a", target="", summary="s")'),
        ("TrackerSpec 'a': target '' must read 'package.module:attribute'",),
    ),
    "text_for_a_switch": Broken(
        _offering("data_sources", 'DataSourceSpec(name="a", target="m:x", summary="s", folders="no")'),
        ("DataSourceSpec 'a': folders is 'no', it must be True or False",),
    ),
    "text_for_a_deadline": Broken(
        _rewards('return [RewardSpec(name="a", target="m:x", summary="s", deadline="9")]'),
        ("RewardSpec 'a': deadline is '9', it must be a number",),
    ),
    "audit_without_a_function": Broken(
        _rewards('return [RewardSpec(name="a", target="m:x", summary="s", audit="m.x")]'),
        ("RewardSpec 'a': audit 'm.x' must read 'package.module:attribute'",),
    ),
    "unresolved_annotation": Broken(
        _offers("unresolved", "rlcore_plugin_unresolved_annotation.judge:Judge", "rlcore_plugin_unresolved_annotation.judge:Options"),
        ("options model 'rlcore_plugin_unresolved_annotation.judge:Options' has an annotation that cannot be resolved: ", "Undefined"),
        keeps=("unresolved",),
        files={
            "judge.py": "class Judge: pass\nfrom pydantic import BaseModel\nclass Options(BaseModel, extra='forbid', frozen=True):\n"
            "    cb: 'Undefined' = 1\n"
        },
    ),
    "missing_model": Broken(
        _offers("modelless", "rlcore_plugin_missing_model.judge:Judge", "rlcore_plugin_missing_model.o:O"),
        ("options model 'rlcore_plugin_missing_model.o:O' cannot be imported",),
        keeps=("modelless",),
        files={"judge.py": "class Judge: pass\n"},
    ),
}
JUDGE = "from rlcore.api import Reward, Score\n\nclass Judge(Reward):\n    def score(self, item):\n        return Score(value=1.0)\n"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[PluginFolder]:
    """A folder with one sound plugin, which must survive whatever else is installed."""
    with PluginFolder(tmp_path / "site") as folder:
        folder.install("sound", _rewards(f"return [{_reward('sound')}]"), files={"judge.py": JUDGE})
        yield folder


def _check_sound(registry: Registry) -> None:
    assert registry.owner("reward", "sound") == "rlcore-plugin-sound"
    assert registry.load("reward", "sound")().score(None).value == 1.0
    assert registry.has("loss", "clipped")
    assert registry.check_run(None) == []


@pytest.mark.parametrize("name", ZOO)
def test_one_broken_plugin_is_blamed_and_the_host_works(folder: PluginFolder, name: str) -> None:
    case = ZOO[name]
    folder.install(name, case.source, target=case.target, files=case.files)
    registry = folder.discover()
    _check_sound(registry)
    assert set(registry.names("reward")) == {"sound", *case.keeps}
    rows = {row["distribution"]: row for row in describe(registry)["plugins"]}
    row = rows[f"rlcore-plugin-{name}"]
    assert row["status"] == "broken"
    assert len(row["problems"]) == 1, row["problems"]
    assert "\n" not in row["problems"][0]
    for word in case.why:
        assert word in row["problems"][0]
    assert [other["status"] for key, other in rows.items() if key != f"rlcore-plugin-{name}"] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("target", "source", "words"),
    [
        ("nowhere:Judge", "class Judge: pass\n", ("cannot be imported", "nowhere")),
        ("judge:Jugde", "class Judge: pass\n", ("does not exist, did you mean 'Judge'",)),
        ("judge:Judge", "class Judge\n", ("cannot be imported: SyntaxError", "judge.py, line 1")),
    ],
)
def test_a_target_that_only_an_import_shows_to_be_absent_is_one_sentence_on_use(
    folder: PluginFolder, target: str, source: str, words: tuple[str, ...]
) -> None:
    folder.install("heavy", _offers("heavy", f"rlcore_plugin_heavy.{target}"), files={"judge.py": source})
    with pytest.raises(PluginError, match=r"^reward 'heavy' of rlcore-plugin-heavy: its target") as told:
        folder.discover().load("reward", "heavy")
    assert all(word in str(told.value) for word in words)
    assert "\n" not in str(told.value)


def test_a_damaged_distribution_is_a_row_too(folder: PluginFolder) -> None:
    folder.install("damaged", HEAD)
    info = next(folder.root.glob("rlcore_plugin_damaged*.dist-info"))
    (info / "entry_points.txt").write_text("[rlcore]\nno equals sign\n")
    registry = folder.discover()
    _check_sound(registry)
    assert any(row.problems for row in registry.rows if row.distribution == "rlcore-plugin-damaged")


def test_the_whole_zoo_at_once_through_the_command(folder: PluginFolder) -> None:
    for name, case in ZOO.items():
        folder.install(name, case.source, target=case.target, files=case.files)
    for name in ("twin_a", "twin_b"):
        folder.install(name, _rewards(f"return [{_reward('twin')}, {_reward(name)}]"))
    _check_sound(folder.discover())
    code = "import sys; from rlcore.cli import main; sys.exit(main())"
    for flags in ([], ["--json"]):
        command = [sys.executable, "-c", code, "plugins", *flags]
        done = subprocess.run(command, env=folder.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr + done.stdout
        said = " ".join(done.stdout.replace('\\"', '"').split())  # the table folds
        for name, case in ZOO.items():
            assert f"rlcore-plugin-{name}" in done.stdout
            assert all(word in said for word in case.why)
        assert "reward 'twin' is registered by rlcore-plugin-twin_a and rlcore-plugin-twin_b" in said
    listed = json.loads(done.stdout)
    assert {row["status"] for row in listed["plugins"]} == {"ok", "broken"}


def test_two_that_register_one_name_keep_their_other_names(folder: PluginFolder) -> None:
    for name in ("twin_a", "twin_b"):
        folder.install(name, _rewards(f"return [{_reward('twin')}, {_reward(name)}]"))
    registry = folder.discover()
    assert registry.load("reward", "twin_a")() is not None
    assert registry.load("reward", "twin_b")() is not None
    with pytest.raises(PluginError, match="twin_a and rlcore-plugin-twin_b; switch one off: RLCORE_DISABLE=rlcore-plugin-twin_b"):
        registry.load("reward", "twin")
    with pytest.raises(PluginError):
        registry.options_model("reward", "twin")


CHECKS = f"{HEAD}@hookimpl\ndef rlcore_check_run(config):\n    "


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return ['The batch is too small.']", "rlcore-plugin-checker: The batch is too small."),
        ("return 1 / 0", "rlcore-plugin-checker: rlcore_check_run raised ZeroDivisionError"),
        ("return 'a sentence'", "rlcore-plugin-checker: rlcore_check_run returned str"),
        ("return [3]", "rlcore-plugin-checker: rlcore_check_run returned list"),
    ],
)
def test_a_check_that_objects_or_fails_is_a_problem_with_its_owner(folder: PluginFolder, body: str, words: str) -> None:
    folder.install("checker", CHECKS + body)
    problems = folder.discover().check_run(None)
    assert len(problems) == 1
    assert words in problems[0]


def test_a_check_without_objection_says_nothing(folder: PluginFolder) -> None:
    folder.install("checker", CHECKS + "return []")
    assert folder.discover().check_run(None) == []


def test_nothing_of_the_core_is_broken(folder: PluginFolder) -> None:
    registry = folder.discover()
    assert not any(row.problems for row in registry.rows)
    assert registry.name_conflicts() == []
    assert {offer: problems for offer, problems in registry.faults().items() if problems} == {}
