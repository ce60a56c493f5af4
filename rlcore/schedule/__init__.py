"""Who produces what, when, and what is trained next: a pure state machine, and the accounting of time.

Numbers and names only: no groups, no tensors, no I/O, no threads of its own. Runtimes wrap it.
"""

from rlcore.schedule.accounting import IDLE, TimeAccount
from rlcore.schedule.coordinator import Coordinator
from rlcore.schedule.ledger import Ledger, Tally
from rlcore.schedule.order import episode_order
from rlcore.schedule.records import Admission, Delivery, Status, TrainOrder, Verdict, WaitingFor
from rlcore.schedule.settings import ScheduleSettings

__all__ = [
    "IDLE",
    "Admission",
    "Coordinator",
    "Delivery",
    "Ledger",
    "ScheduleSettings",
    "Status",
    "Tally",
    "TimeAccount",
    "TrainOrder",
    "Verdict",
    "WaitingFor",
    "episode_order",
]
