"""The pages of the public surface, one for each kind that needs more than ``rlcore.api``: they change on purpose only."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from types import ModuleType

import pytest

PAGES = {
    "conversations": """
        Conversation ConversationContext ConversationSpec ConversationSteps Dialogue Message RolloutBranch Transcript Turn Wait following
    """,
    "environments": """
        ChosenEnvironment Environment EnvironmentSpec EpisodeResult Model ProgramCommand ProgramEnvironment TurnEnvironment
        environment_target
    """,
    "data": """
        BadRow ChatTokenizer DataError DataSection DataSource LONGEST_ROW Routes RowConversion RowFormat RowGenerator RowSource install_line
        json_value number_text only_place opened parse_row read_rows tools_of
    """,
    "judging": "PendingScores Result RewardMixer RewardEntry Task reward_entries",
    "commands": """
        CollectWords Command Config EXTRAS ExampleFormatter Missing Parser
        Part Plan RELEASED Registry RunConfig Spec SteadyConsole TypedFlag
        add_run_options add_train_flags check_data check_recipe escape_control in_python install_line load_target plain_console
        plan_arguments plan_json plan_of
        plan_run preview_settings python_errors reason run_plan runs_among train_flags write_bytes write_json_lines
    """,
    "display": "Progress TaskReport UpdatePace format_duration evaluation_line format_metric format_work mean_accuracy",
    "schedule": "ChosenSampler Coordinator Delivery LeaseQueue ScheduleSettings SourceSchedule TrainOrder",
    "settings": """
        AlgorithmSection BACKENDS DEADLINE_SETTINGS Draft LISTS Layer RuleContext
        ScheduleSection Section Setting TypedFlag UPDATE_PARTS as_typed closest
        combine core_settings expected file_layer flag_layer from_text
        get_path in_one_process model_settings needed_reach ratio_is_one setting
        validation_error without_bounds
    """,
    "runtime": """
        Attestation Batch DeliveryStatus ENVIRONMENT Evaluation Evaluator
        FilterError FilterMonitor GroupJob GroupSummary Interrupt JobMaker
        Judge JudgeCounts OneProcess Plan ProbeFailedError ProducedGroup Producer RewardBudgetError Role RunConfig RunSection
        Runtime RuntimeLostError ScheduleSection SharePlan StarvationError Status TaskReport Texts TimeAccount Timing TokenCounts
        Update WaitingFor Watchdog WorkerLostError WorkerTime batch_figures check_model_files check_reach
        cuda_devices error_context fingerprints first_version fits_one_process inference_notes install_line
        is_library leave_out_bad_rows limit_threads load_data make_consumer make_conversation make_coordinator
        make_engine make_evaluator make_filter_monitor make_jobs make_judge make_publisher make_receiver newer_weights open_judge
        outline_of peak_memory probe_sequence probe_tolerance profiled read_texts reason rollout_rows schedule_settings
        thread_variables threads_of used_plugins with_prompts
    """,
    "runs": """
        BestCheckpoint BestFigure InputTooLargeError PastRun RunFolder bounded_lines checkpoint_steps json_document last_writer
        metric_of past_runs read_document read_manifest unpacked
    """,
    "sandbox": "Job Level Limit Limits ProgramResult SHARED_OPTIONS Sandbox SandboxError SandboxOptions Session SessionJob open_sandbox",
    "weights": """
        GroupBrokenError HostLayout OnFailure Probe Publisher Receiver RemoteSnapshot Snapshot WeightSource WeightTransfer WeightsError
        cut_into_buckets
    """,
}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_what_it_was(page: str) -> None:
    module = import_module(f"rlcore.api.{page}")
    assert sorted(module.__all__) == sorted(PAGES[page].split())
    extra = {name for name, value in vars(module).items() if not name.startswith("_") and not isinstance(value, ModuleType)}
    assert extra - set(module.__all__) == {"annotations"}
    undocumented = [name for name in module.__all__ if isinstance(getattr(module, name), type) and not getattr(module, name).__doc__]
    assert not undocumented
    assert module.__doc__


def test_the_surface_loads_no_page() -> None:
    code = "import sys, rlcore.api; print([name for name in sys.modules if name.startswith('rlcore.api.')])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


def test_a_name_that_moved_to_a_library_says_where() -> None:
    with pytest.raises(ImportError, match="compatible_python is in the module python_check of the library rlcore-plugin-workers"):
        exec("from rlcore.api.runtime import compatible_python")
