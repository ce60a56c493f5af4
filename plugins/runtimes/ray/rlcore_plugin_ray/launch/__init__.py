"""From a planned run to a file with which a batch system starts it. This package writes text, starts nothing, and contacts no cluster."""

from rlcore_plugin_ray.launch.devices import Machines, check_machines, machines_for
from rlcore_plugin_ray.launch.packages import Packages, packages_of
from rlcore_plugin_ray.launch.slurm import SlurmJob, sbatch_text
from rlcore_plugin_ray.launch.time_limit import check_time_limit

__all__ = ["Machines", "Packages", "SlurmJob", "check_machines", "check_time_limit", "machines_for", "packages_of", "sbatch_text"]
