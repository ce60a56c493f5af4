"""For plugins that inspect runs: find run folders, read their files, and look up the meaning of figures.

>>> for run in past_runs(Path("runs/rlcore")):
...     print(run.root.name, checkpoint_steps(run.checkpoints), last_writer(run.root))

- ``metric_of`` finds the description of a figure by its name.
- ``BestCheckpoint`` ranks steps by the figure that the user named.
- ``RunFolder.at`` knows the places of the files of a run.
- ``read_document``, ``json_document``, ``bounded_lines`` and ``unpacked`` read them, and raise ``InputTooLargeError`` for files
  that are too large.

None of these takes a lock. Scripts that read a run use ``RunRecord`` of the distribution ``rlcore-plugin-tools``.
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
