"""`make bench-report`: what ten thousand rollouts cost the report. The last line is one JSON object.

Bytes of the file, seconds to write it, and in a headless Chromium: seconds from the navigation until everything is there and painted, and
milliseconds from a key in the search box until the frame with its result is painted. Texts are of 250 words, answers to grade-school
problems by length. A window each time, so nothing is warm but the browser.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from rlcore_plugin_tools.report.page_text import page
from rlcore_plugin_tools.report.report_content import Bounds, ReportContent

from tests.chromium import Chromium
from tests.synthetic_runs import SyntheticRun

ROLLOUTS = 10_000
_KEYS = """
(async () => {
  const input = document.querySelector('#search');
  const painted = () => new Promise((done) => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = done;
    channel.port2.postMessage(0);
  }));
  const times = [];
  await painted();
  for (const value of ['t', 'th', 'the', 'ther', 'there', 'theref', 'therefo', '', 'boxed{17}', 'boxed{1', '4', '', 'no such text', '']) {
    input.value = value;
    const start = performance.now();
    input.dispatchEvent(new Event('input', { bubbles: true }));
    await painted();
    times.push(performance.now() - start);
  }
  return times;
})()
"""


def measure(folder: Path, runs: int) -> dict[str, Any]:
    """All figures, of a run that is written into ``folder``."""
    run = SyntheticRun(steps=100, groups=10, answers=ROLLOUTS // 1000, words=250).write(folder / "run")
    start = time.perf_counter()
    content = ReportContent([run], Bounds(ROLLOUTS, 6000))
    figures, rollouts = content.figures(), content.rollouts()
    data = page(figures, rollouts)
    seconds = time.perf_counter() - start
    (folder / "report.html").write_bytes(data)
    ready, keys = [], []
    with Chromium() as browser:
        for _ in range(runs):
            with browser.open((folder / "report.html").as_uri()) as window:
                ready.append(int(window.wait("document.documentElement.dataset.ready")) / 1000)
                keys += window.evaluate(_KEYS)
    texts = rollouts["columns"]["text"]
    return {
        "rollouts": rollouts["told"][0]["rollouts"],
        "answers": rollouts["told"][0]["answers"],
        "characters_mean": round(statistics.fmean(map(len, texts))),
        "bytes": len(data),
        "write_seconds": round(seconds, 2),
        "ready_seconds": _spread(ready, 3),
        "filter_milliseconds": _spread(keys, 1),
        "runs": runs,
    }


def _spread(values: list[float], digits: int) -> dict[str, float]:
    return {
        name: round(value, digits) for name, value in (("min", min(values)), ("median", statistics.median(values)), ("max", max(values)))
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="windows that are opened [5]")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        print(json.dumps(measure(Path(place), arguments.runs)))
