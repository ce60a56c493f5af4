"""The run folder, in which a run records its inputs, its progress and its results."""

from rlcore.runlog.folder import RunFolder
from rlcore.runlog.run_manifest import build_manifest

__all__ = ["RunFolder", "build_manifest"]
