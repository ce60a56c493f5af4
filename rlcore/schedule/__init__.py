"""The schedule: a pure state machine that decides the order of work, and the accounting of time.

It decides which worker produces which groups, and which groups are trained next. It holds numbers and names only: no groups, no tensors, no
I/O, no threads. Runtimes wrap it.
"""

from rlcore.contracts.runtime_interface import Admission, Status, WaitingFor
from rlcore.schedule.accounting import IDLE, Role, Span, TimeAccount, Timeline, WorkerTime
from rlcore.schedule.chosen_sampler import ChosenSampler
from rlcore.schedule.coordinator import Coordinator
from rlcore.schedule.prompt_order import episode_order
from rlcore.schedule.schedule_records import (
    Delivery,
    DeliveryStatus,
    GroupSummary,
    ScheduleSettings,
    SourceSchedule,
    TokenCounts,
    TrainOrder,
)

__all__ = [
    "IDLE",
    "Admission",
    "ChosenSampler",
    "Coordinator",
    "Delivery",
    "DeliveryStatus",
    "GroupSummary",
    "Role",
    "ScheduleSettings",
    "SourceSchedule",
    "Span",
    "Status",
    "TimeAccount",
    "Timeline",
    "TokenCounts",
    "TrainOrder",
    "WaitingFor",
    "WorkerTime",
    "episode_order",
]
