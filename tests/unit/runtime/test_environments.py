"""A process in another virtual environment: third-party packages are its own, rlcore and the plugins are the driver's."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import distribution, distributions
from pathlib import Path

import pytest
import rlcore_plugin_grpo
from rlcore_plugin_processes.launcher import ProcessLauncher
from rlcore_plugin_workers.environments import interpreter, link_own_packages
from rlcore_plugin_workers.plan_bundle import PlanBundle
from rlcore_plugin_workers.producer_worker import ProducerWorker
from rlcore_plugin_workers.python_check import compatible_python
from rlcore_plugin_workers.workers import Placement

import rlcore
from rlcore.contracts.errors import ConfigError, PluginError
from rlcore.registry.plugin_registry import Registry
from rlcore.runtime.loading import fingerprints, load_data, read_texts
from rlcore.testing import RunTester, make_plan
from tests.integration.ray.small_cluster import short_folder
from tests.other_environment import SITE, other_environment
from tests.worker_hosts import Importer


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return other_environment(tmp_path_factory.mktemp("other") / "env", without=("sympy", "mpmath"))


@pytest.fixture
def launcher() -> Iterator[ProcessLauncher]:
    made = ProcessLauncher()
    yield made
    made.close()


def test_a_worker_in_an_environment_has_its_packages_and_the_driver_s_rlcore(launcher: ProcessLauncher, environment: Path) -> None:
    worker = launcher.start(Importer, name="producer-0", placement=Placement(environment=environment))
    found = worker.call("places", "rlcore", "rlcore_plugin_grpo", "numpy", "only_there", "sympy").result(60)
    assert found["python"] == str(environment / "bin" / "python")
    for name in ("only_there", "numpy"):
        assert found[name].startswith(str(environment))
    for name, module in (("rlcore", rlcore), ("rlcore_plugin_grpo", rlcore_plugin_grpo)):
        assert Path(found[name]).resolve() == Path(str(module.__file__)).resolve()
    assert found["sympy"] is None
    facts = worker.call("facts", "VIRTUAL_ENV", "PATH").result(60)
    assert str(SITE) not in facts["path"]
    assert facts["VIRTUAL_ENV"] == str(environment)
    assert facts["PATH"].startswith(f"{environment}/bin:")


def test_the_plugins_that_it_finds_are_the_driver_s(launcher: ProcessLauncher, environment: Path) -> None:
    worker = launcher.start(Importer, name="producer-0", placement=Placement(environment=environment))
    there = {distribution: (version, problems) for distribution, version, problems in worker.call("plugins").result(60)}
    here = {row.distribution: (row.version, row.problems) for row in Registry.discover().rows}
    assert "rlcore-plugin-grpo" in here
    assert there == here


@pytest.mark.full
def test_a_producer_in_an_environment_attests_its_plugins(
    launcher: ProcessLauncher, environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tester = RunTester(tmp_path).with_fakes()
    monkeypatch.chdir(tmp_path)
    with tester.plugins:
        plan = make_plan(tester.fake_run())
        data = load_data(plan)
        plan_bundle = PlanBundle.of(plan, fingerprints(data, read_texts(plan, data).tokenizer))
        good = launcher.start(ProducerWorker, plan_bundle, "producer-0", name="producer-0", placement=Placement(environment=environment))
        last = replace(plan_bundle.attestations[-1], version="0.9")
        other = replace(plan_bundle, attestations=(*plan_bundle.attestations[:-1], last))
        bad = launcher.start(ProducerWorker, other, "producer-1", name="producer-1", placement=Placement(environment=environment))
        assert good.call("prepare").result(60) == []
        with pytest.raises(PluginError, match=r"^producer producer-1 refuses to start: .* version is '0.9' in the driver"):
            bad.call("prepare").result(60)
        worker = launcher.start(Importer, name="producer-2", placement=Placement(environment=environment))
        assert str(SITE) not in worker.call("open_shipment", plan_bundle).result(60)


def test_a_package_that_the_environment_lacks_is_named_with_what_to_type(launcher: ProcessLauncher, environment: Path) -> None:
    worker = launcher.start(Importer, name="producer-0", placement=Placement(environment=environment))
    line = re.escape(f"{environment}/bin/python -m pip install sympy")
    with pytest.raises(ConfigError, match=rf"^producer-0 runs in environment {environment}, which lacks module sympy; type {line} \("):
        worker.call("load", "sympy").result(60)


def test_the_links_are_gone_when_the_launcher_is_closed(launcher: ProcessLauncher, environment: Path) -> None:
    worker = launcher.start(Importer, name="producer-0", placement=Placement(environment=environment))
    folder = Path(worker.call("places", "rlcore").result(60)["rlcore"]).parents[1]
    launcher.close()
    assert not folder.exists()
    assert Path(str(rlcore.__file__)).exists()


def test_a_folder_without_a_python_is_refused_before_anything_starts(launcher: ProcessLauncher, tmp_path: Path) -> None:
    said = rf"^environment {tmp_path} has no bin/python; make one: .*python\S* -m venv {tmp_path}$"
    with pytest.raises(ConfigError, match=said):
        launcher.start(Importer, name="producer-0", placement=Placement(environment=tmp_path))


def test_a_name_in_place_of_a_folder_is_told_how_to_get_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = r"make one: rlcore env build vllm-cpu, and give the folder that it prints \(later: rlcore env path vllm-cpu\)$"
    with pytest.raises(ConfigError, match=said):
        interpreter(Path("vllm-cpu"), tmp_path)


def fake_python(folder: Path, prints: str) -> Path:
    """A folder whose bin/python prints this, whatever it is asked."""
    (folder / "bin").mkdir(exist_ok=True)
    python = folder / "bin" / "python"
    python.write_text(f"#!/bin/sh\necho '{prints}'\n")
    python.chmod(0o755)
    return folder


def test_another_minor_version_of_python_is_refused(tmp_path: Path) -> None:
    here = ".".join(map(str, sys.version_info[:2]))
    said = rf"^environment {tmp_path} has Python 3\.9 and the driver has {here}, .*make a new one: .* -m venv --clear {tmp_path}$"
    with pytest.raises(ConfigError, match=said):
        interpreter(fake_python(tmp_path, "[[3, 9], []]"), tmp_path)


def test_an_environment_without_what_rlcore_imports_is_refused(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    said = r"/bare lacks cloudpickle, numpy, .*, which rlcore imports; type \S+/bare/bin/python -m pip install .*pydantic-core"
    with pytest.raises(ConfigError, match=said):
        interpreter(tmp_path / "bare", tmp_path)


def bare_file(python: Path) -> None:
    python.write_text("")
    python.chmod(0o644)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (bare_file, "Permission denied"),
        (lambda python: python.symlink_to(python.with_name("absent")), "No such file or directory"),
        (lambda python: fake_python(python.parents[1], ""), "it printed nothing"),
        (lambda python: fake_python(python.parents[1], "hello"), "it printed hello"),
    ],
)
def test_a_python_that_does_not_run_is_refused(make: Callable[[Path], object], why: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    make(tmp_path / "bin" / "python")
    with pytest.raises(ConfigError, match=rf"^{tmp_path}/bin/python is not a working Python \({why}\); make the environment again$"):
        compatible_python(tmp_path)


@pytest.mark.parametrize("dry", [True, False])
@pytest.mark.parametrize("flag", ["--inference-environment", "--training-environment"])
def test_an_environment_is_looked_at_by_the_dry_run_and_before_anything_is_loaded(dry: bool, flag: str, tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    folder = tmp_path / "env"
    folder.mkdir()
    fake_python(folder, "[[3, 9], []]")
    done = tester.run("train", tester.fake_run(), flag, str(folder), *["--dry-run"] * dry)
    done.assert_refused(f"{flag} {folder}: environment {folder} has Python 3.9 and the driver has")
    assert not done.written


def test_what_the_run_brought_is_on_the_path_and_what_the_driver_s_environment_brought_is_not(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path, str(SITE / "of_a_package")])
    path = interpreter(environment, Path("/packages"))[1]["PYTHONPATH"].split(":")
    assert path[:2] == ["/packages", str(tmp_path)]
    assert not [entry for entry in path if entry.startswith((str(SITE), sysconfig.get_path("stdlib")))]


def test_the_folder_of_an_editable_install_is_on_the_path_wherever_the_run_starts(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is on the path of a bare Python too, and what it holds is in no other environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert str(Path(__file__).parents[3]) in interpreter(environment, Path("/packages"))[1]["PYTHONPATH"].split(":")


def test_packages_are_linked_with_their_versions_and_entry_points(tmp_path: Path) -> None:
    link_own_packages(tmp_path)
    found = {distribution.name: distribution for distribution in distributions(path=[str(tmp_path)])}
    assert {"rlcore", "rlcore-plugin-grpo", "rlcore-plugin-code", "rlcore-plugin-workers"} <= set(found), "the last one has no entry point"
    for name, there in found.items():
        here = distribution(name)
        assert (there.version, list(there.entry_points), there.requires) == (here.version, list(here.entry_points), here.requires)
    assert (tmp_path / "rlcore_plugin_code" / "corpus").is_dir()
    assert (tmp_path / "rlcore_plugin_workers" / "worker_runtime.py").is_file()


def test_the_packages_of_a_checkout_that_stands_on_the_path_are_linked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build leaves ``rlcore.egg-info`` in a checkout, which Python finds first if it starts there."""
    packages, checkout = tmp_path / "packages", tmp_path / "checkout"
    packages.mkdir()
    described = distribution("rlcore")
    info = checkout / "rlcore.egg-info"
    info.mkdir(parents=True)
    for name, text in (
        ("PKG-INFO", described.read_text("METADATA") or described.read_text("PKG-INFO")),
        ("entry_points.txt", described.read_text("entry_points.txt")),
    ):
        (info / name).write_text(text or "")
    monkeypatch.syspath_prepend(checkout)
    link_own_packages(packages)
    (found,) = distributions(name="rlcore", path=[str(packages)])
    assert (found.version, found.requires) == (described.version, described.requires)
    assert list(found.entry_points) == list(described.entry_points)


@pytest.mark.full
@pytest.mark.filterwarnings("default::ResourceWarning")
def test_an_actor_of_ray_runs_in_an_environment(environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    link_own_packages(tmp_path)
    python, variables = interpreter(environment, tmp_path)
    with short_folder() as folder:
        ray.init("local", _temp_dir=str(folder), num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
        try:
            actor = ray.remote(Importer).options(runtime_env={"py_executable": python, "env_vars": variables}).remote()
            found = ray.get(actor.places.remote("rlcore", "only_there", "sympy"), timeout=120)
            plugins = ray.get(actor.plugins.remote(), timeout=120)
            path = ray.get(actor.facts.remote(), timeout=120)["path"]
        finally:
            ray.shutdown()
    assert (found["python"], found["sympy"]) == (python, None)
    assert found["only_there"].startswith(str(environment))
    assert plugins == [(row.distribution, row.version, row.problems) for row in Registry.discover().rows]
    assert str(SITE) not in path


def test_an_environment_without_the_engine_is_refused_with_what_to_type() -> None:
    environment = Path(sys.prefix)
    assert compatible_python(environment, "pydantic") == environment / "bin" / "python"
    with pytest.raises(ConfigError, match=rf"^environment {environment} lacks absent_engine; make one that has it: type this$"):
        compatible_python(environment, "absent_engine", "type this")
    with pytest.raises(ConfigError, match=r"has no bin/python; make one: type this$"):
        compatible_python(environment / "nowhere", "absent_engine", "type this")
