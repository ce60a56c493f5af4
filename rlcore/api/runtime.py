"""For authors of runtimes, which decide where the roles of a run execute.

A plugin registers a ``RuntimeSpec`` with ``rlcore_register_runtimes``. Its target is called as ``target(plan, closing, say)`` and returns a
``Runtime``. The loop of the run asks it for the work, and knows nothing of its threads, processes or hosts. The target pushes everything
that must be ended on ``closing`` as soon as it exists. ``say`` prints one line for the user. The options of ``[run.options]`` are
``plan.runtime_options``.

- *The work*: ``load_data``, ``read_texts``, ``fingerprints``, ``check_model_files``; ``open_judge``,
  ``make_judge``, ``make_engine``, ``make_consumer``, ``make_jobs``, ``make_conversation``, ``make_evaluator``, ``make_filter_monitor``,
  ``make_publisher``, ``make_receiver`` make the parts as configured. ``Producer`` generates rollouts and has them judged; the consumer
  trains. A command without a run calls ``leave_out_bad_rows`` first. ``error_context`` names the part that raised.
- *The schedule*: the coordinator (``rlcore.api.schedule``, made by ``make_coordinator``) leases prompts and cuts batches. A resumed run
  begins with ``first_version``. ``JobMaker`` makes jobs of leases, and a ``GroupSummary`` of each delivered group.
- *One process*: ``OneProcess`` is the runtime of a run that needs no workers (``fits_one_process``). For several processes, the library
  ``rlcore-plugin-workers`` has a runtime over workers that your own launcher starts.
- *Processes*: ``ENVIRONMENT`` names the variable with the environment of a process; ``is_library``; ``cuda_devices`` and ``threads_of``
  describe this machine; ``Watchdog`` tells whether a thread hangs.
- *Reports of the run*: ``batch_figures``, ``rollout_rows`` and ``with_prompts``, ``TimeAccount`` and ``Timing`` (the use of the time),
  ``FilterMonitor``.

``rlcore.testing.RuntimeSuite`` checks a runtime.
"""

from __future__ import annotations

from rlcore.config import Plan, RunConfig
from rlcore.config.run_config import RunSection, ScheduleSection
from rlcore.contracts.errors import FilterError, RewardBudgetError, RuntimeLostError, StarvationError, WorkerLostError
from rlcore.contracts.group_outlines import outline_of
from rlcore.contracts.runtime_interface import ENVIRONMENT, Interrupt, Runtime, Status, TaskReport, Update, WaitingFor
from rlcore.contracts.snapshots import ProbeFailedError, probe_tolerance
from rlcore.host.devices import cuda_devices
from rlcore.host.threads import limit_threads, thread_variables, threads_of
from rlcore.registry.discovery import is_library
from rlcore.registry.error_context import error_context, reason
from rlcore.registry.install import install_line
from rlcore.registry.plugin_registry import Attestation
from rlcore.rewards.judge import Judge
from rlcore.rewards.judge_stats import JudgeCounts
from rlcore.roles.consumer import SharePlan
from rlcore.roles.evaluator import Evaluation, Evaluator
from rlcore.roles.producer import GroupJob, ProducedGroup, Producer
from rlcore.runtime.backends import inference_notes, make_consumer, make_conversation, make_engine
from rlcore.runtime.bad_rows import leave_out_bad_rows
from rlcore.runtime.batch_report import Batch, batch_figures, probe_sequence, rollout_rows, with_prompts
from rlcore.runtime.factories import (
    JobMaker,
    check_reach,
    first_version,
    make_coordinator,
    make_evaluator,
    make_filter_monitor,
    make_jobs,
    make_judge,
    make_publisher,
    make_receiver,
    newer_weights,
    open_judge,
    schedule_settings,
    used_plugins,
)
from rlcore.runtime.filter_monitor import FilterMonitor
from rlcore.runtime.loading import Texts, fingerprints, load_data, read_texts
from rlcore.runtime.one_process import OneProcess, fits_one_process
from rlcore.runtime.resumption import check_model_files
from rlcore.runtime.timing import Timing, peak_memory, profiled
from rlcore.runtime.watchdog import Watchdog
from rlcore.schedule import DeliveryStatus, GroupSummary, Role, TimeAccount, TokenCounts, WorkerTime

__all__ = [
    "ENVIRONMENT",
    "Attestation",
    "Batch",
    "DeliveryStatus",
    "Evaluation",
    "Evaluator",
    "FilterError",
    "FilterMonitor",
    "GroupJob",
    "GroupSummary",
    "Interrupt",
    "JobMaker",
    "Judge",
    "JudgeCounts",
    "OneProcess",
    "Plan",
    "ProbeFailedError",
    "ProducedGroup",
    "Producer",
    "RewardBudgetError",
    "Role",
    "RunConfig",
    "RunSection",
    "Runtime",
    "RuntimeLostError",
    "ScheduleSection",
    "SharePlan",
    "StarvationError",
    "Status",
    "TaskReport",
    "Texts",
    "TimeAccount",
    "Timing",
    "TokenCounts",
    "Update",
    "WaitingFor",
    "Watchdog",
    "WorkerLostError",
    "WorkerTime",
    "batch_figures",
    "check_model_files",
    "check_reach",
    "cuda_devices",
    "error_context",
    "fingerprints",
    "first_version",
    "fits_one_process",
    "inference_notes",
    "install_line",
    "is_library",
    "leave_out_bad_rows",
    "limit_threads",
    "load_data",
    "make_consumer",
    "make_conversation",
    "make_coordinator",
    "make_engine",
    "make_evaluator",
    "make_filter_monitor",
    "make_jobs",
    "make_judge",
    "make_publisher",
    "make_receiver",
    "newer_weights",
    "open_judge",
    "outline_of",
    "peak_memory",
    "probe_sequence",
    "probe_tolerance",
    "profiled",
    "read_texts",
    "reason",
    "rollout_rows",
    "schedule_settings",
    "thread_variables",
    "threads_of",
    "used_plugins",
    "with_prompts",
]


def __getattr__(name: str) -> object:
    if name in ("answer_of", "compatible_python", "installing"):
        raise ImportError(f"{name} is in the module python_check of the library rlcore-plugin-workers")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
