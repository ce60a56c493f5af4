"""The real coordinator under a virtual clock: simulates a cluster of any size with a workload that numbers describe."""

from rlcore_plugin_tools.plan.draws import Draws
from rlcore_plugin_tools.plan.measure import Figures
from rlcore_plugin_tools.plan.scenario import Scenario
from rlcore_plugin_tools.plan.simulated_run import Simulation, simulate
from rlcore_plugin_tools.plan.weight_update import WeightUpdate
from rlcore_plugin_tools.plan.workload_model import Workload

__all__ = ["Draws", "Figures", "Scenario", "Simulation", "WeightUpdate", "Workload", "simulate"]
