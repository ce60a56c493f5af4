"""For authors of runtimes: what decides where the roles of a run live.

A plugin registers a ``RuntimeSpec`` by ``rlcore_register_runtimes``; its target is called as ``target(plan, closing, say)`` and returns a
``Crew``. The loop of the run asks the crew for the work and knows nothing of its threads, processes or hosts. What must be ended is pushed
on ``closing`` as soon as it exists; ``say`` prints one line for the user. The options of ``[run.options]`` are ``plan.runtime_options``.

- *The work*: ``load_data``, ``read_texts``, ``fingerprints``, ``check_model_files``; ``open_judge``, ``make_judge``, ``make_engine``,
  ``make_consumer``, ``make_jobs``, ``make_conversation``, ``make_evaluator``, ``make_watch``, ``make_publisher``, ``make_receiver``: parts
  made as the configuration says. ``Producer`` generates and has judged, ``Consumer`` trains; ``blaming`` names whose part raised.
- *The schedule*: the coordinator (``rlcore.api.schedule``, made by ``make_coordinator``) leases prompts and cuts batches; a run that goes
  on begins with ``first_version``. ``ScheduleService`` is the coordinator behind an event loop, ``GroupStore`` holds groups between
  generation and training, ``AsyncJudge`` is a judge that several producers share. If the schedule is in another process than the store,
  ``GatheredDeliveries`` stands between them: what is delivered during one call (a ``Parcel`` each) goes together in the next.
- *A crew over workers*: ``WorkerCrew`` is the crew of a run whose producers and trainer ranks are ``Worker``s, wherever they run. A runtime
  gives it a ``Site``: a ``Launcher`` that starts workers, a ``Seat`` for each, and the services (``Links``) that a producer talks to.
  ``DriverCrew`` and ``DriverSite`` have the services in the driver's process.
- *Processes*: ``Interpreters`` of environments, ``missing_package`` that one lacks; ``cuda_devices`` and ``threads_of`` this machine.
- *Several processes*: a ``Shipment`` is a plan on its way to them; each refuses to start if it resolves a plugin otherwise.
- *What the run reports*: ``batch_figures``, ``rollout_rows`` and ``with_prompts``, ``TimeAccount`` and ``Timing`` (where
  the seconds went), ``FilterWatch``.

``rlcore.testing.RuntimeSuite`` checks a runtime.
"""

from __future__ import annotations

from rlcore.config import Plan, RunConfig
from rlcore.config.model import RunSection
from rlcore.contracts.crew import Crew, Update
from rlcore.contracts.errors import RuntimeLostError, WorkerLostError
from rlcore.contracts.snapshots import probe_tolerance
from rlcore.contracts.specs import RuntimeSpec
from rlcore.host.blame import blaming, reason
from rlcore.host.devices import cuda_devices
from rlcore.host.environments import Interpreters, missing_package
from rlcore.host.install import install_line
from rlcore.host.threads import thread_variables, threads_of
from rlcore.rewards.judge import Judge
from rlcore.rewards.tally import VerdictCounts
from rlcore.roles.consumer import Consumer
from rlcore.roles.evaluator import TaskReport
from rlcore.roles.producer import GroupJob, Produced, Producer
from rlcore.runtime.backends import make_consumer, make_conversation, make_engine
from rlcore.runtime.batch_report import Batch, batch_figures, rollout_rows, with_prompts
from rlcore.runtime.delivering import GatheredDeliveries
from rlcore.runtime.driver_crew import DriverCrew, DriverSite
from rlcore.runtime.interrupt import Interrupt
from rlcore.runtime.loading import Texts, fingerprints, load_data, read_texts
from rlcore.runtime.node_services import AsyncJudge, GroupStore
from rlcore.runtime.parts import (
    check_reach,
    first_version,
    make_coordinator,
    make_evaluator,
    make_jobs,
    make_judge,
    make_publisher,
    make_receiver,
    make_watch,
    open_judge,
    schedule_settings,
    used_plugins,
)
from rlcore.runtime.resumption import check_model_files
from rlcore.runtime.schedule_service import Arrival, Outcome, Parcel, ScheduleService
from rlcore.runtime.shipment import Shipment
from rlcore.runtime.site import Links, Site
from rlcore.runtime.starvation import FilterWatch
from rlcore.runtime.timing import Timing
from rlcore.runtime.trainer_host import probe_sequence
from rlcore.runtime.worker_crew import WorkerCrew
from rlcore.runtime.workers import Launcher, Seat, Worker, WorkerDiedError
from rlcore.schedule import Role, Status, TimeAccount, Verdict, WorkerTime

__all__ = [
    "Arrival",
    "AsyncJudge",
    "Batch",
    "Consumer",
    "Crew",
    "DriverCrew",
    "DriverSite",
    "FilterWatch",
    "GatheredDeliveries",
    "GroupJob",
    "GroupStore",
    "Interpreters",
    "Interrupt",
    "Judge",
    "Launcher",
    "Links",
    "Outcome",
    "Parcel",
    "Plan",
    "Produced",
    "Producer",
    "Role",
    "RunConfig",
    "RunSection",
    "RuntimeLostError",
    "RuntimeSpec",
    "ScheduleService",
    "Seat",
    "Shipment",
    "Site",
    "Status",
    "TaskReport",
    "Texts",
    "TimeAccount",
    "Timing",
    "Update",
    "Verdict",
    "VerdictCounts",
    "Worker",
    "WorkerCrew",
    "WorkerDiedError",
    "WorkerLostError",
    "WorkerTime",
    "batch_figures",
    "blaming",
    "check_model_files",
    "check_reach",
    "cuda_devices",
    "fingerprints",
    "first_version",
    "install_line",
    "load_data",
    "make_consumer",
    "make_conversation",
    "make_coordinator",
    "make_engine",
    "make_evaluator",
    "make_jobs",
    "make_judge",
    "make_publisher",
    "make_receiver",
    "make_watch",
    "missing_package",
    "open_judge",
    "probe_sequence",
    "probe_tolerance",
    "read_texts",
    "reason",
    "rollout_rows",
    "schedule_settings",
    "thread_variables",
    "threads_of",
    "used_plugins",
    "with_prompts",
]
