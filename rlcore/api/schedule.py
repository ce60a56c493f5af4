"""For plugins that drive rlcore's schedule themselves, as the simulator does: a run's coordinator, and the queue that deals its leases.

Both are pure state machines without a clock, threads or files. Whoever drives them says what happened, and is told what comes next.
"""

from __future__ import annotations

from rlcore.schedule.coordinator import Coordinator
from rlcore.schedule.lease_queue import LeaseQueue
from rlcore.schedule.schedule_records import Delivery, ScheduleSettings, TrainOrder

__all__ = ["Coordinator", "Delivery", "LeaseQueue", "ScheduleSettings", "TrainOrder"]
