"""The core decides nothing by the name of a plugin: it asks the plugins' specs. Words and sentences of the core that hold such a name are
listed here, each with what it means."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest

from rlcore.contracts.specs import PluginKind
from rlcore.registry.known_plugins import known_names
from rlcore.registry.plugin_registry import Registry
from tests.syntax import nodes

ROOT = Path(__file__).parents[2]
OFFERS = ("rlcore/registry/builtin.py", "rlcore/registry/known_plugins.py", "rlcore/registry/install.py")
"""What the core offers, and what it knows how to install: lists of names, which nothing is decided by."""

MEANT: Mapping[str, Mapping[str, str]] = {
    "rlcore/__init__.py": {
        "train": "the function rlcore.train",
        **dict.fromkeys(("eval", "runs", "score"), "commands whose plugin offers a function for Python"),
    },
    "rlcore/cli/plugins.py": {"plugins": "a key of the answer"},
    "rlcore/cli/train.py": {"report": "a command that the outcome names, if somebody offers it", "train": "the training prompts"},
    "rlcore/config/resolve.py": {
        "agent": "the conversation of a run with an environment, as a default",
        "truncated": "what auto means, as a default: the core offers it",
    },
    "rlcore/config/plan_record.py": {"train": "the training prompts"},
    "rlcore/config/resume_rules.py": {"eval": "a section of settings"},
    "rlcore/config/section.py": {"eval": "a section of settings", "train": "an effect of a verdict"},
    "rlcore/config/source_plans.py": {"weighted": "the sampler of several sources, if none is named: the core offers it"},
    "rlcore/config/validation_errors.py": {"choices": "an attribute of pydantic"},
    "rlcore/contracts/environment.py": {"environment": "an outcome of an episode"},
    "rlcore/config/data_source.py": {
        "sequential": "the sampler of endless data, if none is named",
        "shuffled": "a sampler to type: the core offers it",
    },
    "rlcore/config/run_config.py": {
        "train": "a policy for verdicts",
        "runs": "a folder, as a default",
        "transformers": "a default",
        "grpo": "a default",
        "single_turn": "a default",
        "k3": "a default",
        "sample_level": "a default",
        "cosine": "a default",
        "shuffled": "what auto means",
        "sequential": "what auto means",
        "adamw": "a default",
    },
    "rlcore/config/rules.py": dict.fromkeys(("masked", "truncated"), "advice in a sentence: what the core offers"),
    "rlcore/contracts/metric_names.py": {"truncated": "a metric"},
    "rlcore/contracts/sandboxing.py": {"local": "a default", "memory": "a limit of a job"},
    "rlcore/cli/plan_view.py": {"command": "a key of the plan", "resume": "a key of the plan"},
    "rlcore/contracts/capabilities.py": {"resume": "what an engine does after an update"},
    "rlcore/contracts/spec_base.py": {"audit": "a field of a reward's spec", "command": "a kind", "environment": "a kind"},
    "rlcore/contracts/specs.py": {"command": "a kind in a sentence", "environment": "a field of a spec"},
    "rlcore/schedule/prompt_line.py": {"weighted": "a default"},
    "rlcore/schedule/state_formats.py": dict.fromkeys(("sequential", "shuffled"), "the samplers whose runs write format 2"),
    "rlcore/entry.py": {"train": "the function rlcore.train"},
    "rlcore/data/row_sense.py": {"choices": "a column"},
    "rlcore/host/threads.py": {"torch": "the library"},
    "rlcore/learning/advantages.py": {"group_mean": "a function"},
    "rlcore/learning/correction.py": dict.fromkeys(
        ("decoupled", "masked", "sequence_masked", "sequence_truncated", "truncated"), "the specs of its own classes"
    ),
    "rlcore/rewards/worker_protocol.py": {"score": "a method of a reward"},
    "rlcore/rewards/reward_entry.py": {"train": "a policy for verdicts"},
    "rlcore/runlog/past_runs.py": {"watch": "a key of a checkpoint's state"},
    "rlcore/runlog/folder.py": {"eval": "a folder of a run", "rollouts": "a folder of a run"},
    "rlcore/runlog/run_manifest.py": {"command": "a key of the manifest", "plugins": "a key of the manifest"},
    "rlcore/runtime/one_process.py": {"watch": "a key of a checkpoint's state"},
    "rlcore/runtime/factories.py": {"watch": "a key of a checkpoint's state"},
    "rlcore/runtime/filter_monitor.py": {"rollouts": "a metric"},
    "rlcore/runtime/training_run.py": {"rollouts": "the name of a thread"},
    "rlcore/runtime/resumption.py": {"plugins": "a key of the manifest", "train": "a word of a command to type"},
    "rlcore/learning/accuracy_at_k.py": {"pass_at_k": "a function"},
    "rlcore/roles/evaluator.py": {"truncated": "a metric"},
    "rlcore/runtime/batch_report.py": {
        "masked": "a column of the rollout log",
        "train": "the training prompts",
        "truncated": "a metric",
    },
    "rlcore/runtime/loading.py": {"train": "the training prompts"},
    "rlcore/schedule/schedule_records.py": {"masked": "what became of a group"},
}
"""File -> a word that is also the name of a plugin -> what it means there."""

LIBRARIES = {"local", "torch", "transformers"}
"""Names of engines that are also an English word, or a library that the core itself uses."""
ENGINES = (PluginKind.RUNTIME, PluginKind.INFERENCE, PluginKind.TRAINING, PluginKind.TRACKER)


def first_party_names(kinds: Iterable[PluginKind] = tuple(PluginKind)) -> set[str]:
    """What rlcore and the plugins of this repository offer, and what they will."""
    registry = Registry.discover()
    ours = {name for kind in kinds for name in registry.names(kind) if registry.owner(kind, name).startswith("rlcore")}
    return ours | {name for kind in kinds for name in known_names(kind)}


@cache
def words(source: str) -> tuple[tuple[int, str], ...]:
    """Line and value of every text in a file, parts of sentences included; docstrings and arguments called ``mode`` left out."""
    tree = nodes(source)
    left_out = {id(node.value) for node in tree if isinstance(node, ast.Expr)}
    left_out |= {id(node.value) for node in tree if isinstance(node, ast.keyword) and node.arg == "mode"}
    return tuple(
        (node.lineno, node.value)
        for node in tree
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out
    )


def decided_by(root: Path, names: Collection[str]) -> dict[str, dict[str, list[int]]]:
    """File of the core -> name of a plugin -> the lines whose code holds it as a text of its own."""
    found: dict[str, dict[str, list[int]]] = {}
    for path in sorted((root / "rlcore").rglob("*.py")):
        where = path.relative_to(root).as_posix()
        if where in OFFERS or where.startswith("rlcore/testing/"):
            continue
        for line, word in words(path.read_text(encoding="utf-8")):
            if word in names:
                found.setdefault(where, {}).setdefault(word, []).append(line)
    return found


def spoken_of(root: Path, names: Collection[str]) -> list[str]:
    """Sentences of the core that name a plugin, or say to type its name; of LIBRARIES only the latter are found."""
    typed, named = ("|".join(map(re.escape, sorted(some))) for some in (names, set(names) - LIBRARIES))
    pattern = re.compile(rf"\b({named})\b|--[a-z-]+ ({typed})\b", re.IGNORECASE)
    found = []
    for path in sorted((root / "rlcore").rglob("*.py")):
        where = path.relative_to(root).as_posix()
        if where not in OFFERS and not where.startswith("rlcore/testing/"):
            found += [
                f"{where}:{line}: {text}" for line, text in words(path.read_text(encoding="utf-8")) if " " in text and pattern.search(text)
            ]
    return found


def test_the_core_decides_nothing_by_the_name_of_a_plugin() -> None:
    found = {where: set(of_file) for where, of_file in decided_by(ROOT, first_party_names()).items()}
    meant = {where: set(of_file) for where, of_file in MEANT.items()}
    assert found == meant, "ask the specs in the registry, or say in MEANT what the word means there; take out of MEANT what has gone"


def test_no_sentence_of_the_core_names_an_engine() -> None:
    assert spoken_of(ROOT, first_party_names(ENGINES)) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('if name == "ray":\n    pass', {"ray": [1]}),
        ('match name:\n    case "ray":\n        pass', {"ray": [2]}),
        ('WAYS = {\n    "ray": 1,\n}', {"ray": [2]}),
        ('name = "local" if one else "ray"', {"local": [1], "ray": [1]}),
        ('registry.has("runtime", "ray")', {"ray": [1]}),
        ('"""ray"""\nmodel_dump(mode="local")', {}),
        ('say("type --runtime local")', {}),
        ('say("the Ray log of a local run")', {}),
        ('say("a local run with torch")', {}),
    ],
)
def test_the_search_for_words_itself(tmp_path: Path, source: str, found: dict[str, list[int]]) -> None:
    (tmp_path / "rlcore").mkdir()
    (tmp_path / "rlcore" / "some.py").write_text(source, encoding="utf-8")
    assert decided_by(tmp_path, {"ray", "local"}).get("rlcore/some.py", {}) == found
    assert len(spoken_of(tmp_path, {"ray", "local"})) == ("--runtime" in source or "Ray" in source)
