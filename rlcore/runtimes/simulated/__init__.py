"""The real coordinator under a virtual clock: what a cluster of any size would do with a workload that numbers describe."""

from rlcore.runtimes.simulated.draws import Draws
from rlcore.runtimes.simulated.measure import Figures
from rlcore.runtimes.simulated.scenario import Scenario
from rlcore.runtimes.simulated.simulation import Simulation, simulate
from rlcore.runtimes.simulated.workload import Workload

__all__ = ["Draws", "Figures", "Scenario", "Simulation", "Workload", "simulate"]
