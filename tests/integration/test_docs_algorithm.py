"""The pages of algorithms as a stranger follows them: exactly their text becomes a package, is installed by pip, conforms, and trains."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rlcore.config.run_config import RunConfig
from rlcore.contracts.specs import PluginKind
from rlcore.registry.builtin import rlcore_register_corrections
from rlcore.registry.plugin_registry import Registry
from rlcore.testing import RunTester
from rlcore.testing.run_tester import PROGRAM, QUIET
from tests.quickstart_folder import quickstart_in

ROOT = Path(__file__).parents[2]
PAGE, AUTHORS = ((ROOT / "docs" / folder / "algorithms.md").read_text(encoding="utf-8") for folder in ("how_to", "authors"))
BLOCK = re.compile(r"<!-- test: (?P<name>\S+) -->\n```\w+\n(?P<text>.*?)```", re.DOTALL)
BLOCKS = {match["name"]: match["text"] for match in BLOCK.finditer(AUTHORS)}
PACKAGE = "rlcore-plugin-median"
PYTEST = "import sys, pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', *sys.argv[1:]]))"
EACH = """
import json, sys
from rlcore.cli import main
for words in json.loads(sys.argv[1]):
    assert main(words) == 0, words
"""
SAMPLE = re.compile(r"^rlcore (?P<words>[^#\n]*)", re.MULTILINE)


def python(folder: Path, *words: str, path: Path | None = None) -> str:
    """Standard output of the interpreter, which must end with 0."""
    environment = os.environ | QUIET | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": "" if path is None else str(path)}
    done = subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The blocks of the page as files, and nothing else; a quickstart named demo beside them."""
    folder = tmp_path_factory.mktemp("stranger")
    for name, text in BLOCKS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def installed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip put the package: a folder of its own, without network, by the build system that its text names."""
    site = tmp_path_factory.mktemp("site")
    how = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-index", "--no-build-isolation", "--target", str(site)]
    python(source, "-m", "pip", "install", *how, f"./{PACKAGE}")
    return site


def test_the_text_is_short_and_imports_the_public_surface_only() -> None:
    module, project = BLOCKS[f"{PACKAGE}/rlcore_plugin_median.py"], BLOCKS[f"{PACKAGE}/pyproject.toml"]
    lines = [line for line in (project + module).splitlines() if line.strip()]
    assert len(lines) < 40
    assert f"{len(lines)} lines without the test" in AUTHORS
    package = "".join(text for name, text in BLOCKS.items() if name.startswith(PACKAGE))
    assert set(re.findall(r"(?:from|import) (rlcore[\w.]*)", package)) == {
        "rlcore.api",
        "rlcore.testing",
        "rlcore_plugin_median",
    }


def test_the_suites_of_single_files_pass(source: Path) -> None:
    said = python(source, "-c", PYTEST, "-rA", "test_sequence_clip.py", "test_parts.py")
    assert {"TestSequenceClip", "TestPerPrompt", "TestHuber", "TestSoftened"} == set(
        re.findall(r"^PASSED \S+::(Test\w+)::", said, re.MULTILINE)
    )


def test_a_package_offers_the_loss(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    packaged = (
        BLOCKS["sequence_clip.py"]
        .replace("(Loss):", "(Loss, spec=LOSS):")
        .replace("\n\n\n", "\nfrom rlcore_plugin_mine import LOSS\n\n\n", 1)
    )
    packaged = re.sub(r" +(?:on_policy|sequence_ratio|one_advantage) = .*\n", "", packaged)
    assert "on_policy" not in packaged
    tester.plugins.install("mine", BLOCKS["rlcore_plugin_mine.py"], files={"sequence_clip.py": packaged})
    done = tester.run("train", tester.fake_run(run={"max_steps": 2}), "--loss", "sequence_clip", "--json").assert_ok()
    assert done.json["steps"] == 2


def test_what_is_installed_is_listed_and_explained(source: Path, installed: Path) -> None:
    rows = [line for line in python(source, "-c", PROGRAM, "plugins", path=installed).splitlines() if PACKAGE in line]
    assert [row.partition("2.0")[2].strip() for row in rows] == ["estimator: median", "algo: median"]
    shown = python(source, "-c", PROGRAM, "show", "algo", "median", path=installed)
    for words in ("A_i = r_i - median(r)", "arXiv 2601.22582", "recipe median: DAPO", 'estimator = "median"'):
        assert words in shown


def test_the_conformance_test_of_the_text_passes(source: Path, installed: Path) -> None:
    said = python(source, "-c", PYTEST, PACKAGE, path=installed)
    assert int(re.findall(r"(\d+) passed", said)[0]) >= 10


@pytest.mark.full
def test_a_model_is_trained_with_it(source: Path, installed: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    here = Path.cwd()
    os.chdir(source)
    try:
        quickstart_in(Path("demo"), tmp_path_factory, train=128, heldout=8)
    finally:
        os.chdir(here)
    base = (source / "demo" / "base" / "model.safetensors").read_bytes()
    words = ["train", "demo/run.toml", "--algo", "median", "--max-steps", "3", "-tbs", "8", "-ei", "0", "--max-staleness", "0", "--json"]
    python(source, "-c", PROGRAM, *words, path=installed)
    (run,) = (source / "demo" / "runs").glob("*/*")
    updates = [line for line in (run / "metrics.jsonl").read_text().splitlines() if '"grad_norm"' in line]
    assert len(updates) == 3
    assert f'"{PACKAGE}"' in (run / "manifest.json").read_text()
    (model,) = run.glob("checkpoints/step-*/model/model.safetensors")
    assert model.read_bytes() != base


def test_the_table_names_every_recipe_that_ships_and_its_distribution() -> None:
    registry = Registry.discover()
    shipped = {name: registry.owner(PluginKind.ALGORITHM, name) for name in registry.names(PluginKind.ALGORITHM)}
    rows = dict(re.findall(r"^\| `([^`]+)`[^|]*\| `(rlcore-plugin-[^`]+)` \|", PAGE, re.MULTILINE))
    assert rows == {name: owner for name, owner in shipped.items() if owner.startswith("rlcore-plugin-")}


def test_every_correction_is_documented_and_every_setting_named_exists() -> None:
    table = PAGE.partition("| `mismatch_correction` | c_t |")[2].partition("\n\n")[0]
    documented = re.findall(r"^\| `([a-z_]+)` \|", table, re.MULTILINE)
    offered = [spec.name for spec in rlcore_register_corrections()]
    assert documented == ["none", *offered]
    for path in re.findall(r"`((?:algorithm|schedule)\.\w+)`", PAGE):
        section, _, key = path.partition(".")
        assert key in type(getattr(RunConfig(), section)).model_fields, path


def test_every_command_of_the_page_is_accepted(source: Path, installed: Path) -> None:
    """With ``--dry-run`` where it would train; ``run.toml`` is what the page's file says around a model and data."""
    (source / "my_loss.py").write_text(BLOCKS["sequence_clip.py"].replace("SequenceClip", "MyLoss"))
    shutil.rmtree(source / "demo", ignore_errors=True)  # another test trained there, with fewer rows
    (source / "run.toml").write_text('[model]\nmodel = "org/model"\n[data]\ndataset = "train.jsonl"\n[[rewards]]\nname = "boxed"\n')
    blocks = "".join(re.findall(r"```sh\n(.*?)```", PAGE + AUTHORS, re.DOTALL))
    commands = [match["words"].split() for match in SAMPLE.finditer(blocks)]
    assert len(commands) >= 15
    dry = [[*words, "--dry-run"] if words[0] in ("train", "quickstart") else words for words in commands]
    python(source, "-c", EACH, json.dumps(dry), path=installed)


def test_the_file_of_the_page_resolves(source: Path) -> None:
    (source / "combined.toml").write_text(re.findall(r"```toml\n(\[algorithm\].*?)```", PAGE, re.DOTALL)[0], encoding="utf-8")
    shown = python(source, "-c", PROGRAM, "show", "config", "combined.toml")
    for path, value in (
        ("algorithm.loss", "gspo"),
        ("algorithm.options.sequence_eps_high", "0.0005"),
        ("algorithm.dynamic_batching", "true"),
    ):
        assert re.search(rf"{re.escape(path)} +{re.escape(value)} ", shown), f"{path} is not {value}:\n{shown}"
