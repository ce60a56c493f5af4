"""For plugins that drive rlcore's schedule themselves, such as the simulator.

``Coordinator`` is the coordinator of a run, whose sources are each a ``SourceSchedule``; ``ChosenSampler`` is a sampler with its name.
``LeaseQueue`` deals the leases. All are pure state machines without a clock, threads or
files. The caller reports each event, and the state machine answers with the next action.
"""

from __future__ import annotations

from rlcore.schedule.chosen_sampler import ChosenSampler
from rlcore.schedule.coordinator import Coordinator
from rlcore.schedule.lease_queue import LeaseQueue
from rlcore.schedule.schedule_records import Delivery, ScheduleSettings, SourceSchedule, TrainOrder

__all__ = ["ChosenSampler", "Coordinator", "Delivery", "LeaseQueue", "ScheduleSettings", "SourceSchedule", "TrainOrder"]
