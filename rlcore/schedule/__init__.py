"""Who produces what, when, and what is trained next: a pure state machine, and the accounting of time.

Numbers and names only: no groups, no tensors, no I/O, no threads of its own. Runtimes wrap it.
"""

from rlcore.contracts.crew import Admission, Status, WaitingFor
from rlcore.schedule.accounting import IDLE, Role, Span, TimeAccount, Timeline, WorkerTime
from rlcore.schedule.coordinator import Coordinator
from rlcore.schedule.order import episode_order
from rlcore.schedule.schedule_records import Arrival, Delivery, ScheduleSettings, Tokens, TrainOrder, Verdict

__all__ = [
    "IDLE",
    "Admission",
    "Arrival",
    "Coordinator",
    "Delivery",
    "Role",
    "ScheduleSettings",
    "Span",
    "Status",
    "TimeAccount",
    "Timeline",
    "Tokens",
    "TrainOrder",
    "Verdict",
    "WaitingFor",
    "WorkerTime",
    "episode_order",
]
