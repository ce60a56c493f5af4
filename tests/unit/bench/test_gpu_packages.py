"""What `make gpu` brings to a machine without network: the wheels' checks, and a checkout whose plugins are found without an installer."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest

from benchmarks.gpu import packages, wheels
from benchmarks.gpu.packages import declare_checkout, path_of, prepare_site, projects, refuse_incomplete
from benchmarks.gpu.refused import Refused
from benchmarks.gpu.wheels import LIST, MOST_BYTES, check, pinned
from rlcore.registry.discovery import find_plugins

ASK = """
import sys
sys.path[:] = [folder for folder in sys.path if "site-packages" not in folder] + [{packages!r}]
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in repr(finder).lower()]
from importlib.metadata import distributions
import rlcore
from rlcore.registry.discovery import find_plugins
found = find_plugins(distributions(path=[{site!r}]))
print(rlcore.__file__)
for plugin in found:
    print(plugin.row.entry_point, len(plugin.row.offers), *plugin.row.problems)
"""


def test_plugins_of_the_checkout_are_found_where_nothing_of_it_is_installed(tmp_path: Path) -> None:
    declare_checkout(tmp_path)
    import pluggy

    code = ASK.format(packages=str(Path(pluggy.__file__).parents[1]), site=str(tmp_path))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path_of(tmp_path))}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    where, *rows = done.stdout.splitlines()
    assert Path(where).is_relative_to(path_of(tmp_path)[0])
    installed = sorted(plugin.row.entry_point for plugin in find_plugins() if plugin.row.distribution.startswith("rlcore"))
    assert sorted(row.split()[0] for row in rows) == installed
    offers = {row.split()[0]: row.split()[1:] for row in rows}
    assert offers.pop("health") == ["0"], "an observer"
    assert all(len(found) == 1 and int(found[0]) > 0 for found in offers.values()), rows


def test_declaring_twice_leaves_no_older_version(tmp_path: Path) -> None:
    stale = tmp_path / "rlcore_plugin_torch-0.0.1.dist-info"
    stale.mkdir()
    (stale / "METADATA").write_text("Metadata-Version: 2.4\nName: rlcore-plugin-torch\nVersion: 0.0.1\n")
    declare_checkout(tmp_path)
    declare_checkout(tmp_path)
    names = [found.metadata["Name"] for found in distributions(path=[str(tmp_path)])]
    assert sorted(names) == sorted(project["name"] for _, project in projects())
    assert not stale.exists()


def test_a_site_is_filled_once_and_again_for_other_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled: list[list[str]] = []

    def install(wheels: list[Path], site: Path) -> None:
        filled.append([path.name for path in wheels])
        site.mkdir()

    monkeypatch.setattr("benchmarks.gpu.packages._install", install)
    wheels, site = tmp_path / "wheels", tmp_path / "site"
    wheels.mkdir()
    with pytest.raises(Refused, match="holds no wheels; type `make gpu-wheels`"):
        prepare_site(wheels, site)
    (wheels / "a-1-py3-none-any.whl").touch()
    prepare_site(wheels, site)
    prepare_site(wheels, site)
    assert len(filled) == 1
    (wheels / "b-1-py3-none-any.whl").touch()
    prepare_site(wheels, site)
    assert filled[1] == ["a-1-py3-none-any.whl", "b-1-py3-none-any.whl"]


def test_wheels_that_cannot_be_installed_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "broken-1.0-py3-none-any.whl").write_bytes(b"no wheel")
    with pytest.raises(Refused, match="cannot be installed into") as caught:
        prepare_site(tmp_path / "wheels", tmp_path / "site")
    assert "\n" not in str(caught.value)


def test_a_package_that_neither_the_machine_nor_the_site_has_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "_EXPECTED", ("rich", "not_on_any_machine"))
    with pytest.raises(Refused, match=r"lacks not_on_any_machine \(`make gpu-wheels` brings what") as caught:
        refuse_incomplete([str(tmp_path)])
    assert "\n" not in str(caught.value)
    (tmp_path / "not_on_any_machine").mkdir()
    (tmp_path / "not_on_any_machine" / "__init__.py").touch()
    refuse_incomplete([str(tmp_path)])


def test_the_page_names_what_the_machine_must_have() -> None:
    page = (Path(__file__).parents[3] / "docs" / "maintainers" / "gpu.md").read_text(encoding="utf-8")
    listed = re.findall(r"\w+", page.partition("needs Python 3.12 with ")[2].partition(".")[0])
    assert set(packages._EXPECTED) <= set(listed)
    names = {name.replace("-", "_") for name in pinned(LIST.read_text(encoding="utf-8"))}
    assert names.isdisjoint(listed)
    assert {name for name in packages._BROUGHT if not name.startswith("rlcore")} <= names


def test_the_list_pins_what_the_parts_import_in_the_versions_of_the_tests() -> None:
    wanted = pinned(LIST.read_text(encoding="utf-8"))
    needed = {"pydantic", "pydantic-core", "annotated-types", "typing-inspection", "tomli-w", "math-verify", "latex2sympy2-extended"}
    assert needed | {"antlr4-python3-runtime", "datasets", "dill", "multiprocess", "pytest-timeout", "trl"} <= set(wanted)
    constraints = {name.replace("_", "-"): version for name, version in pinned_constraints().items()}
    different = {name for name, version in wanted.items() if constraints.get(name, version) != version}
    assert different <= {"datasets"}, "constraints.txt says what the tests ran with; the wheels of these packages have other versions"


def pinned_constraints() -> dict[str, str]:
    lines = (Path(__file__).parents[3] / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if "==" in line)  # type: ignore[misc]


@pytest.mark.parametrize("name", ["torch", "nvidia-cublas", "nvidia_nccl_cu13", "triton"])
def test_torch_never_travels(tmp_path: Path, name: str) -> None:
    with pytest.raises(Refused, match="belongs to the machine's own torch"):
        pinned(f"{name}==1.0")
    (tmp_path / f"{name.replace('-', '_')}-1.0-py3-none-any.whl").touch()
    with pytest.raises(Refused, match="belongs to the machine's own torch"):
        check(tmp_path, {name: "1.0"})


def test_a_folder_that_is_not_the_list_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tomli_w-1.2.0-py3-none-any.whl").write_bytes(b"123")
    assert check(tmp_path, {"tomli-w": "1.2.0"}) == 3
    with pytest.raises(Refused, match=r"dill 0\.4\.1 is in only one of the folder and wheels\.txt"):
        check(tmp_path, {"tomli-w": "1.2.0", "dill": "0.4.1"})
    with pytest.raises(Refused, match="without a version; write dill==VERSION"):
        pinned("dill")


@pytest.mark.parametrize(
    ("folder", "sentence"),
    [
        ("file", "cannot be written (Not a directory)"),
        ("file/wheels", "cannot be written (Not a directory)"),
        ("/proc/none", "cannot be written (No such file or directory)"),
        ("/", "holds other things than wheels, and its content is replaced; name a new folder"),
        (".", "holds other things than wheels"),
        ("..", "holds other things than wheels"),
    ],
)
def test_a_bad_folder_is_one_sentence_and_keeps_what_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: str, sentence: str
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "file").write_text("precious")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "argv", ["wheels", "--folder", folder])
    monkeypatch.setattr(wheels, "_fetch", lambda wanted, folder: pytest.fail("the folder is looked at first"))
    with pytest.raises(SystemExit) as ended:
        wheels.main()
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said.startswith("make gpu-wheels: --folder ")
    assert sentence in said
    assert said.count("\n") == 1
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == ["here", "here/file"]


def test_wheels_take_the_place_of_older_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fetch(wanted: dict[str, str], folder: Path) -> None:
        for name, version in wanted.items():
            (folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl").touch()

    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "old-1-py3-none-any.whl").touch()
    monkeypatch.setattr(sys, "argv", ["wheels", "--folder", str(tmp_path / "wheels")])
    monkeypatch.setattr(wheels, "_fetch", fetch)
    wheels.main()
    assert check(tmp_path / "wheels", pinned(LIST.read_text(encoding="utf-8"))) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["wheels"]


def test_more_than_sixty_megabytes_are_refused(tmp_path: Path) -> None:
    with (tmp_path / "tomli_w-1.2.0-py3-none-any.whl").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(Refused, match="60 MB may travel"):
        check(tmp_path, {"tomli-w": "1.2.0"})
