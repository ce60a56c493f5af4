"""Where the time goes: torch's profiler over a few decode steps and one update; the ten operations that took the device longest."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity
from torch.profiler import profile as torch_profile

from benchmarks.gpu.models import SHAPES, TINY, write_model
from benchmarks.gpu.setting import Outcome, Setting
from benchmarks.gpu.workload import FULL, TINY_LOAD, batch_of, drain, make_engine, make_trainer, objective, requests

__all__ = ["heaviest", "profile"]

MOST = 10


def profile(setting: Setting) -> Outcome:
    """A row for each of the ten heaviest operations of generation and of the update; whole traces go to ``keep``."""
    shape, load = (TINY, TINY_LOAD) if setting.tiny else (SHAPES["0.6b"], replace(FULL, prompts=4, new=32))
    model = write_model(shape, setting.scratch / "model", setting.device)
    engine = make_engine(model, load, setting.device, "bfloat16")
    trainer = make_trainer(model, load, setting.device, "bfloat16")
    asked = requests(load, shape.vocabulary, 1)
    answers = drain(engine, asked)
    batch = batch_of(asked, answers, load)
    trainer.update(batch, objective())
    work: dict[str, Callable[[], object]] = {
        "generation": lambda: drain(engine, requests(load, shape.vocabulary, 2)),
        "update": lambda: trainer.update(batch, objective()),
    }
    rows = [{"phase": phase, **row} for phase, run in work.items() for row in _profiled(setting, phase, run)]
    engine.close()
    trainer.close()
    first = {phase: next(row for row in rows if row["phase"] == phase) for phase in work}
    said = "; ".join(f"{phase}: {row['operation']} {row['share']:.0%}".replace("%", " %") for phase, row in first.items())
    return Outcome(said=f"heaviest in {said}", figures={"operations": len(rows)}, rows=rows)


def _profiled(setting: Setting, phase: str, run: Callable[[], object]) -> list[dict[str, Any]]:
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if setting.device == "cuda" else [])]
    with torch_profile(activities=activities) as profiler:
        run()
    setting.keep.mkdir(parents=True, exist_ok=True)
    whole = setting.scratch / f"trace-{phase}.json"
    profiler.export_chrome_trace(str(whole))
    with whole.open("rb") as source, gzip.open(setting.keep / f"trace-{phase}.json.gz", "wb") as target:
        shutil.copyfileobj(source, target)
    return heaviest(profiler.key_averages(), setting.device)


def heaviest(averages: Iterable[Any], device: str) -> list[dict[str, Any]]:
    """Operation, milliseconds, share of all and calls, by the time that the device spent on each operation alone.

    On CUDA the profiler reports an operation and the kernels that it started as two entries; only the operations count here.
    """
    name = "self_device_time_total" if device == "cuda" else "self_cpu_time_total"
    spent = [(float(getattr(item, name)), item) for item in averages if item.device_type == DeviceType.CPU]
    total = sum(microseconds for microseconds, _ in spent) or 1.0
    return [
        {"operation": item.key[:80], "ms": round(microseconds / 1e3, 3), "share": round(microseconds / total, 4), "calls": item.count}
        for microseconds, item in sorted(spent, key=lambda pair: -pair[0])[:MOST]
    ]
