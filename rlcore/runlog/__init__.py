"""The run folder: where a run writes down what it was, what it did and what it made."""

from rlcore.runlog.folder import RunFolder
from rlcore.runlog.run_manifest import build_manifest

__all__ = ["RunFolder", "build_manifest"]
