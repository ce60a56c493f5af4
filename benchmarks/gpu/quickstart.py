"""`rlcore quickstart` on the device, as a user types it: held-out accuracy before and after."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from benchmarks.gpu.device import backend_device
from benchmarks.gpu.setting import REPOSITORY, Outcome, Setting

__all__ = ["learn"]


def learn(setting: Setting) -> Outcome:
    """``failed`` where it does not learn what it learns on a CPU (below 0.9 from at most 0.6); a tiny run makes two updates and shows
    only that it runs."""
    device = backend_device(setting.device)
    flags = ["--inference-device", device, "--training-device", device, "--max-staleness", "0", "--json"]
    short = ["--max-steps", "2", "-ei", "0"] if setting.tiny else []
    command = [sys.executable, "-m", "rlcore", "quickstart", str(setting.scratch / "quickstart"), *flags, *short]
    path = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return Outcome(said=f"rlcore quickstart ended with {done.returncode}; its error is in the log", status="failed")
    summary = json.loads(done.stdout.splitlines()[-1])
    before, after = summary["accuracy_before"], summary["accuracy_after"]
    figures = {name: summary[name] for name in ("steps", "train_seconds", "tokens_per_second", "accuracy_before", "accuracy_after")}
    if before is None or after is None:
        return Outcome(
            said=f"{summary['steps']} updates, accuracy not measured", figures=figures, status="done" if setting.tiny else "failed"
        )
    learned = setting.tiny or (before <= 0.6 and after >= 0.9)
    said = f"accuracy {before:.3f} before, {after:.3f} after {summary['steps']} updates in {summary['train_seconds']:.0f} s"
    return Outcome(said=said, figures=figures, status="done" if learned else "failed")
