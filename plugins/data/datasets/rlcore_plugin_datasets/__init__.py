"""The data sources ``csv``, ``parquet`` and ``hub``, and row formats of published data sets.

Importing this loads neither pyarrow nor datasets.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.api import DataSourceSpec, RowFormatSpec, hookimpl

rlcore_api = "2.0"

_FORMATS = (
    ("verl", "training_files:VerlRows", "Files for verl: prompt (messages), data_source, reward_model.ground_truth"),
    ("dapo", "training_files:DapoRows", "DAPO-Math-17k, and open-r1's processed one: reward_model.ground_truth"),
    ("trl", "training_files:TrlRows", "TRL: prompt (text or messages) and solution"),
    ("openr1", "problem_sets:OpenR1Rows", "OpenR1-Math, NuminaMath-1.5: problem, answer, problem_type, question_type"),
    ("gsm8k", "problem_sets:Gsm8kRows", "GSM8K: question, and answer whose last line is #### and a number"),
    ("math", "problem_sets:MathRows", "MATH: problem, and solution with a box, or answer"),
    ("nemotron", "problem_sets:NemotronRows", "Nemotron, OpenMathReasoning: problem or question or a request, and expected_answer"),
    ("nemotron_post", "reasoning_sets:NemotronPostRows", "Nemotron Post-Training: messages, category, metadata.expected_answer"),
    ("intellect2", "reasoning_sets:Intellect2Rows", "INTELLECT-2, SYNTHETIC-1 and 2: prompt, task_type, verification_info.ground_truth"),
    ("intellect3", "reasoning_sets:Intellect3Rows", "INTELLECT-3, mathematics and science: question, answer, info, avg@8_…"),
    ("deepmath", "reasoning_sets:DeepMathRows", "DeepMath-103K: question, final_answer, topic"),
    ("orz", "reasoning_sets:OrzRows", "Open-Reasoner-Zero: two turns, the second with ground_truth.value"),
    ("dolci", "reasoning_sets:DolciRows", "Dolci, mathematics: prompt, dataset, ground_truth"),
    ("rllm", "reasoning_sets:RllmRows", "rllm: question, ground_truth, data_source"),
    ("choices", "choice_sets:ChoiceRows", "MMLU-Pro, SuperGPQA, ARC: question, options or choices, and the right one"),
)


@hookimpl
def rlcore_register_data_sources() -> Sequence[DataSourceSpec]:
    """Return the specs of the data sources: tables, and the hub."""
    return [
        DataSourceSpec(
            name="csv",
            target="rlcore_plugin_datasets.csv_file:CsvFile",
            config="rlcore_plugin_datasets.csv_file:CsvOptions",
            summary="CSV with a header; every column is text",
            suffixes=(".csv", ".csv.gz"),
        ),
        DataSourceSpec(
            name="parquet",
            target="rlcore_plugin_datasets.tables:ParquetFile",
            summary="Parquet; needs pyarrow",
            suffixes=(".parquet",),
        ),
        DataSourceSpec(
            name="hub",
            target="rlcore_plugin_datasets.tables:HubRows",
            summary="hf:NAME, hf:NAME:SPLIT or hf:NAME:CONFIG:SPLIT on the Hugging Face hub, or a folder saved by datasets",
            prefix="hf:",
            folders=True,
            remote=True,
        ),
    ]


@hookimpl
def rlcore_register_row_formats() -> Sequence[RowFormatSpec]:
    """Return the spec of each row format."""
    return [RowFormatSpec(name=name, target=f"rlcore_plugin_datasets.{target}", summary=summary) for name, target, summary in _FORMATS]
