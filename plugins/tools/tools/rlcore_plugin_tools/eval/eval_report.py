"""Describes an evaluation, before it begins and after it, in words and as plain data for a program."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rlcore.api.commands import Plan, escape_control
from rlcore_plugin_tools.eval.eval_plan import plugins_of
from rlcore_plugin_tools.eval.evaluating import Evaluated
from rlcore_plugin_tools.eval.subject import Subject

__all__ = ["evaluated_json", "plan_text", "planned_json"]


def plan_text(plan: Plan, subject: Subject) -> str:
    """Return a few lines for a terminal: the model, the tasks, the settings, and anything that is missing."""
    config = plan.config
    held_out, inference = config.eval, config.inference
    where = f" in {inference.environment}" if inference.environment else ""
    engines = "" if inference.num_inferencer == 1 else f", {inference.num_inferencer} engines"
    of_run = f" (run {subject.run}, after {subject.step} updates)" if subject.run else ""
    lines = [
        f"model     {config.model.model}{of_run}",
        *(f"task      {task}: {path}" for task, path in held_out.eval_dataset.items()),
        *(f"answers   {part.label}{_answers(part.plan)}" for part in plan.parts if part.plan.config.eval.eval_dataset),
        f"backend   {inference.name}{where}{engines}",
        f"reward    {', '.join(_rewards(plan))}",
        *(f"missing   {item}" for item in plan.missing),
    ]
    return "\n".join(map(escape_control, lines))


def _answers(plan: Plan) -> str:
    held_out = plan.config.eval
    drawn = f"temperature {held_out.eval_temperature:g}" if held_out.eval_temperature else "greedy"
    longest = held_out.eval_max_new_tokens or plan.config.sampling.max_new_tokens
    return f"{held_out.eval_samples} per prompt, {drawn}, at most {longest} tokens"


def _rewards(plan: Plan) -> list[str]:
    return list(dict.fromkeys(entry.name for part in plan.parts for entry in part.plan.config.rewards))


def planned_json(plan: Plan, subject: Subject) -> dict[str, Any]:
    """Return the object that ``--dry-run --json`` prints."""
    held_out, inference = plan.config.eval, plan.config.inference
    return {
        **_named(plan, subject),
        "tasks": dict(held_out.eval_dataset),
        "backend": inference.name,
        "environment": inference.environment,
        "producers": inference.num_inferencer,
        "rewards": _rewards(plan),
        "missing": [{"what": item.what, "command": item.command} for item in plan.missing],
        "notes": list(plan.notes),
    }


def evaluated_json(plan: Plan, subject: Subject, found: Evaluated, out: Path | None) -> dict[str, Any]:
    """Return the object that ``--json`` prints: the figures of each task by their names in ``metrics.jsonl``."""
    tasks = {
        report.task: {
            "prompts": found.prompts[report.task],
            "dropped": found.dropped.get(report.task, 0),
            "bad_rows": dict(found.bad_rows.get(report.task, {})),
            "completions": len(report.rows),
            "failed": report.failed,
            "figures": report.figures(),
            **found.outcomes[report.task],
            "cost": found.costs[report.task],
        }
        for report in found.reports
    }
    return {
        **_named(plan, subject),
        "tasks": tasks,
        "backend": plan.config.inference.name,
        "out": None if out is None else str(out),
        "kept": found.kept,
        "seconds": round(found.seconds, 3),
        "load_seconds": round(found.load_seconds, 3),
        "tokens": found.tokens,
        "tokens_per_second": found.tokens / max(found.seconds, 1e-9),
        "versions": _versions(plan),
        "evaluation": dict(found.evaluation),
    }


def _named(plan: Plan, subject: Subject) -> dict[str, Any]:
    held_out = plan.config.eval
    return {
        "model": plan.config.model.model,
        "run": None if subject.run is None else str(subject.run),
        "step": subject.step,
        "seed": plan.config.run.seed,
        "samples": held_out.eval_samples,
        "temperature": held_out.eval_temperature,
        "max_new_tokens": held_out.eval_max_new_tokens or plan.config.sampling.max_new_tokens,
    }


def _versions(plan: Plan) -> dict[str, str]:
    """Return the versions of Python, rlcore and every distribution whose plugin took part."""
    found = [plan.registry.attest(kind, name) for kind, name in plugins_of(plan)]
    return {"python": platform.python_version(), "rlcore": version("rlcore"), **{item.distribution: item.version for item in found}}
