"""For plugins that look at runs: which run folders there are, how to read what is in them, and what its figures mean.

>>> for run in past_runs(Path("runs/rlcore")):
...     print(run.root.name, checkpoint_steps(run.checkpoints), last_writer(run.root))

``metric_of`` finds the description of a figure by its name. ``BestCheckpoint`` ranks steps by the figure that
the user named. ``RunFolder.at`` knows where the files of a run are. ``read_document``, ``json_document``, ``bounded_lines`` and
``unpacked`` read them, and raise ``InputTooLargeError`` for a file without an end. Nothing of this takes a lock. Scripts that read a run
use ``RunRecord`` of the distribution ``rlcore-plugin-tools``.
"""

from __future__ import annotations

from rlcore.contracts.metric_names import metric_of
from rlcore.host.bounded_reading import InputTooLargeError, bounded_lines, json_document, read_document, unpacked
from rlcore.runlog.best_checkpoint import BestCheckpoint, BestFigure
from rlcore.runlog.checkpoint import checkpoint_steps
from rlcore.runlog.folder import RunFolder
from rlcore.runlog.past_runs import PastRun, past_runs
from rlcore.runlog.run_lock import last_writer
from rlcore.runlog.run_manifest import read_manifest

__all__ = [
    "BestCheckpoint",
    "BestFigure",
    "InputTooLargeError",
    "PastRun",
    "RunFolder",
    "bounded_lines",
    "checkpoint_steps",
    "json_document",
    "last_writer",
    "metric_of",
    "past_runs",
    "read_document",
    "read_manifest",
    "unpacked",
]
