"""A virtual environment for tests: the third-party packages of the one that runs them, and nothing of rlcore."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from pathlib import Path

from rlcore.testing import PluginFolder

__all__ = ["SITE", "install_engine_there", "other_environment"]

SITE = Path(sysconfig.get_path("purelib"))
OURS = re.compile(r"_*(editable|rlcore)|.*\.pth$")
_ENGINE = """
from rlcore.api import InferenceBackendSpec, hookimpl
from rlcore.testing import FakeInference

rlcore_api = "2.0"


class InferenceThere(FakeInference):
    def __init__(self, context, options):
        import only_there

        super().__init__(context, options)


@hookimpl
def rlcore_register_inference_backends():
    return [
        InferenceBackendSpec(
            name="there",
            target="rlcore_plugin_there:InferenceThere",
            config="rlcore.testing:FakeInferenceOptions",
            tokenizer="rlcore.testing.tokens:load_fake_tokenizer",
            summary="The fake, where only_there is.",
        )
    ]
"""


def other_environment(folder: Path, without: tuple[str, ...] = ()) -> Path:
    """Make it, of links, without some packages; it has a module ``only_there``."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for entry in SITE.iterdir():
        if not OURS.match(entry.name) and entry.name.partition("-")[0].partition(".")[0] not in without:
            (site / entry.name).symlink_to(entry)
    (site / "only_there.py").write_text("VALUE = 5\n")
    return folder


def install_engine_there(plugins: PluginFolder) -> None:
    """Offer the fake engine as ``there``: it can be made only in a process of such an environment."""
    plugins.install("there", _ENGINE)
