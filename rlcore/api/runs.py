"""For authors of commands that look at runs: what is in a run folder, and what its figures mean.

>>> for run in past_runs(Path("runs/rlcore")):
...     record = RunRecord(run.root)
...     print(run.root.name, record.state, len(record.updates()))

``RunRecord`` reads a run that is over, that died, or that still goes on; it takes no lock and writes nothing. ``METRICS`` describes every
figure, ``metric_of`` finds the description of a name. ``flat_settings`` are those of one run by their paths; ``differing_settings`` and
``groups_by_seed`` compare those of several. ``as_rollout`` gives an answer of an evaluation the names of a rollout.
"""

from __future__ import annotations

from rlcore.contracts.metric_names import METRICS, Metric, metric_of
from rlcore.runlog.best_checkpoint import BestFigure
from rlcore.runlog.points import PastRun, past_runs
from rlcore.runlog.reading import RunRecord, as_rollout
from rlcore.runlog.settings_compared import SEED, differing_settings, flat_settings, groups_by_seed

__all__ = [
    "METRICS",
    "SEED",
    "BestFigure",
    "Metric",
    "PastRun",
    "RunRecord",
    "as_rollout",
    "differing_settings",
    "flat_settings",
    "groups_by_seed",
    "metric_of",
    "past_runs",
]
