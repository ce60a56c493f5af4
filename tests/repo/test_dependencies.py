"""Every distribution declares what it imports and imports what it declares; `all` is all; bounds are those that tests ran with."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.dependencies import WORKSHOP, Distribution, distributions, findings, normal

ROOT = Path(__file__).parents[2]

CORE = """
[project]
name = "rlcore"
dependencies = ["numpy>=1.26"]

[project.optional-dependencies]
ray = ["ray>=2.56,<2.61"]
"""
PLUGIN = """
[project]
name = "rlcore-plugin-planted"
dependencies = ["rlcore>=0.1,<1"]
"""


def planted(folder: Path, *, declared: str = '"rlcore>=0.1,<1"', source: str = "import rlcore.api\n", core: str = CORE) -> Path:
    """A core and one plugin below ``folder``: ``declared`` are the plugin's dependencies, ``source`` is its module."""
    plugin = folder / "plugins" / "rewards" / "planted"
    package = plugin / "rlcore_plugin_planted"
    for path in (folder / "rlcore", package):
        path.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(core)
    (folder / "rlcore" / "__init__.py").write_text("import numpy\n\ndef run():\n    import ray\n")
    (plugin / "pyproject.toml").write_text(PLUGIN.replace('"rlcore>=0.1,<1"', declared))
    (package / "__init__.py").write_text(source)
    return folder


def test_every_distribution_declares_what_it_imports() -> None:
    done = subprocess.run([sys.executable, "tools/dependencies.py"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


@pytest.mark.parametrize(
    ("imported", "condition"), [("from typing import TYPE_CHECKING", "TYPE_CHECKING"), ("import typing", "typing.TYPE_CHECKING")]
)
def test_an_import_for_type_checkers_alone_needs_no_declaration(tmp_path: Path, imported: str, condition: str) -> None:
    source = f"import json\n{imported}\n\nimport rlcore.api\n\nif {condition}:\n    import torch\nelse:\n    import sympy\n"
    (found,) = findings(planted(tmp_path, source=source))
    assert "does not declare sympy" in found


@pytest.mark.parametrize(
    ("declared", "source", "said"),
    [
        (
            '"rlcore>=0.1"',
            "import rlcore\n\ndef f():\n    from sympy.core import Expr\n",
            "does not declare sympy, which plugins/rewards/planted/rlcore_plugin_planted/__init__.py:4 imports",
        ),
        ('"rlcore>=0.1"', "from rlcore_plugin_other import x\nimport rlcore\n", "does not declare rlcore-plugin-other"),
        ('"rlcore", "safetensors>=0.4"', "import rlcore\n", "declares safetensors>=0.4 (dependencies), which none of its modules imports"),
        ('"rlcore", "tomli-w"', "import rlcore\nimport tomli_w\n", None),
        ('"rlcore", "pyarrow"', "import rlcore\nread = importlib.import_module('pyarrow.parquet').read_table\n", None),
        ('"rlcore", "pyarrow"', "import rlcore\nif find_spec('pyarrow') is None:\n    raise SystemExit\n", None),
        ('"rlcore", "pyarrow"', "import rlcore\n__import__('pyarrow')\n", None),
        (
            '"rlcore"',
            "import rlcore\nread = importlib.import_module('pyarrow.parquet').read_table\n",
            "does not declare pyarrow, which plugins/",
        ),
        ('"rlcore"', "import rlcore\n__import__('pyarrow')\n", "does not declare pyarrow, which plugins/"),
        ('"rlcore"', "import rlcore\nfind_spec('pyarrow')\n", None),
        ('"rlcore", "pyarrow"', "import rlcore\nparquet = _optional('pyarrow.parquet', 'a.parquet')\n", None),
        ('"rlcore", "pyarrow"', "import rlcore\nprint('pyarrow')\n", "declares pyarrow (dependencies), which none of its modules imports"),
        ('"rlcore", "pyarrow"', "import rlcore\nimport_module(name, 'pyarrow')\n", "declares pyarrow (dependencies), which none"),
        ('"rlcore", "ray"', "import rlcore\nimport ray._raylet\n", "declares ray (dependencies) without an upper bound"),
        ('"rlcore", "ray<3"', "import rlcore\nimport ray._raylet\n", None),
        ('"rlcore", "transformers>=5"', "import rlcore\nfrom transformers.masking_utils import sdpa_mask\n", "without an upper bound"),
        (
            '"rlcore", "transformers>=5"',
            "import rlcore\nfrom transformers.modeling_layers import X\n",
            "internal transformers.modeling_layers.X",
        ),
        ('"rlcore", "transformers>=5"', "import rlcore\nimport transformers.core_model_loading\n", "without an upper bound"),
        ('"rlcore", "transformers>=5"', "import rlcore\nimport_module('transformers.models.qwen2')\n", "without an upper bound"),
        ('"rlcore", "transformers>=5"', "import rlcore\nfrom transformers import Cache\nfrom transformers.utils import logging\n", None),
        ('"rlcore", "vllm"', "import rlcore\nfrom vllm.v1.engine import x\n", "without an upper bound"),
        ('"rlcore[none]"', "import rlcore\n", "names rlcore[none] (dependencies), and rlcore has no extra none"),
    ],
)
def test_a_planted_package_is_found(tmp_path: Path, declared: str, source: str, said: str | None) -> None:
    found = findings(planted(tmp_path, declared=declared, source=source))
    assert len(found) == (said is not None), found
    assert said is None or said in found[0]


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("rlcore/bad.py", b"import json\ndef f(:\n", "rlcore/bad.py:2 does not parse: invalid syntax"),
        ("rlcore/bad.py", b"import json\nname = '\xff'\n", "rlcore/bad.py:2 does not parse: it is not UTF-8"),
        ("rlcore/bad.py", b"import json\n\n\0\n", "rlcore/bad.py:3 does not parse: it holds a null byte"),
        ("rlcore/bad.py", b"import json\nfrom . import b\n", "rlcore/bad.py:2 is a relative import; import by the whole name"),
        ("pyproject.toml", b"[project]\nname = \n", "pyproject.toml does not parse: Invalid value (at line 2, column 8)"),
        ("pyproject.toml", b"[tool]\n", "pyproject.toml does not parse: it has no table [project] with a name"),
    ],
)
def test_a_file_that_does_not_parse_is_named_with_its_line(tmp_path: Path, file: str, text: bytes, said: str) -> None:
    folder = planted(tmp_path)
    (folder / file).write_bytes(text)
    (folder / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "dependencies.py", folder / "tools")
    done = subprocess.run([sys.executable, "tools/dependencies.py"], cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('dev = ["pytest"]', "declares pytest (extra dev), which no test, benchmark or tool imports"),
        ('algos = ["rlcore-plugin-nowhere"]', "names rlcore-plugin-nowhere (extra algos), and no pyproject.toml"),
        ('all = ["rlcore[planted]"]', "names rlcore[planted] (extra all), and rlcore has no extra planted"),
        ('tables = ["pyarrow"]', "declares pyarrow (extra tables), which none of its modules imports"),
    ],
)
def test_a_planted_extra_is_found(tmp_path: Path, line: str, said: str) -> None:
    (found,) = findings(planted(tmp_path, core=f"{CORE}{line}\n"))
    assert said in found


def test_a_test_may_import_only_what_is_declared(tmp_path: Path) -> None:
    folder = planted(tmp_path)
    (folder / "tests").mkdir()
    (folder / "tests" / "test_planted.py").write_text("import hypothesis\nimport numpy\nimport rlcore_plugin_planted\n")
    (found,) = findings(folder)
    assert found.startswith("the repository does not declare hypothesis, which tests/test_planted.py:1 imports")


@pytest.fixture(scope="module")
def everyone() -> list[Distribution]:
    return distributions(ROOT)


def test_the_extra_all_brings_every_distribution_and_every_extra_for_users(everyone: list[Distribution]) -> None:
    core, *plugins = everyone
    (everything,) = (one for one in core.optional if one.where == "extra all")
    assert everything.extras == core.extras - {"all", *WORKSHOP}
    assert {plugin.name for plugin in plugins} <= {one.name for one in core.optional}


def test_every_extra_that_a_text_or_a_message_names_exists(everyone: list[Distribution]) -> None:
    texts = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *ROOT.glob("plugins/*/*/README.md"), *(ROOT / "rlcore").rglob("*.py")]
    named = {extra for path in texts for group in re.findall(r"\brlcore\[([\w,]+)\]", path.read_text()) for extra in group.split(",")}
    assert named <= everyone[0].extras
    assert {"quickstart", "ray"} <= named


def test_upper_bounds_end_with_the_release_that_tests_run_with(everyone: list[Distribution]) -> None:
    pins = dict(re.findall(r"^([\w.-]+)==([\d.]+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    bounded = [
        (asked, bound[1])
        for one in everyone
        for asked in (*one.required, *one.optional)
        if asked.name in ("ray", "transformers") and (bound := re.search(r"<([\d.]+)", asked.text))
    ]
    assert {asked.name for asked, _ in bounded} == {"ray", "transformers"}
    for asked, bound in bounded:
        major, minor, *_ = pins[asked.name].split(".")
        assert bound == f"{major}.{int(minor) + 1}", f"{asked.text}: constraints.txt pins {pins[asked.name]}; raise both together"


def test_names_are_compared_as_indexes_do() -> None:
    assert normal("latex2sympy2_Extended") == normal("latex2sympy2-extended") == "latex2sympy2-extended"
