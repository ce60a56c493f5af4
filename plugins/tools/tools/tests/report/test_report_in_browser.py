"""The page in a real Chromium: what it shows, that nothing of a run acts in it, that it is quick, and that it can be used by keys."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rlcore_plugin_tools.report.page_server import PageServer
from rlcore_plugin_tools.report.page_text import page as page_of
from rlcore_plugin_tools.report.report_content import Bounds, ReportContent

from rlcore.testing.run_tester import PROGRAM, QUIET
from tests.chromium import BrowserPage, Chromium
from tests.synthetic_runs import SyntheticRun

pytestmark = pytest.mark.full

READY = "document.documentElement.dataset.ready"


def written(folder: Path, *runs: Path, rollouts: int = 10_000, characters: int = 6_000) -> str:
    """The address of a report of the runs."""
    content = ReportContent(runs, Bounds(rollouts, characters))
    path = folder / "report.html"
    path.write_bytes(page_of(content.figures(), content.rollouts()))
    return path.as_uri()


@contextmanager
def opened(chromium: Chromium, url: str, *, width: int = 1280, dark: bool = False) -> Iterator[BrowserPage]:
    """The page once it is there; at the end it must have complained of nothing, and asked nobody."""
    with chromium.open(url, width=width, dark=dark) as page:
        page.wait(READY)
        yield page
        assert page.problems() == []
        assert {address for address in page.requests() if not address.startswith("data:")} - {url} == set()


def text(page: BrowserPage, selector: str) -> str:
    return str(page.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))


def typed(page: BrowserPage, selector: str, value: str) -> None:
    page.evaluate(
        f"(() => {{ const node = document.querySelector({json.dumps(selector)}); node.value = {json.dumps(value)};"
        " node.dispatchEvent(new Event('input', {bubbles: true})); node.dispatchEvent(new Event('change', {bubbles: true})); })()"
    )


def listed(page: BrowserPage) -> int:
    """Rows that the list has, most of them out of sight."""
    return int(text(page, ".list-card > .note").split()[0].replace(",", ""))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = SyntheticRun(steps=40, groups=8, runtime="ray", trainers=2, producers=2, resumes=(21,))
    return made.write(tmp_path_factory.mktemp("runs") / "20260131-120000-abcdef")


# --- what it shows ------------------------------------------------------------------------------------------------------


def test_a_run_on_ray_that_was_resumed_is_one_curve_with_a_mark(chromium: Chromium, run: Path, tmp_path: Path) -> None:
    with opened(chromium, written(tmp_path, run)) as page:
        assert text(page, "h1") == run.name
        assert "torch × 2" in text(page, ".facts")
        assert text(page, ".pill") == "Finished"
        assert text(page, ".banner") == ""
        label = page.evaluate(
            "[...document.querySelectorAll('figure')].find((one) => one.querySelector('h3').textContent === 'Reward').ariaLabel"
        )
        assert label.startswith("Reward. mean: from ")
        assert label.count(";") == 0  # one line
        assert page.evaluate("document.querySelectorAll('#learning canvas').length") > 3
        assert "Resumed once" in page.evaluate("document.querySelector('#versions').textContent")
        assert "2 trainers" in text(page, "#time")
        assert "pass@4" in text(page, "#evaluation table")
        assert _pixels_of_mark(page) > 20


def _pixels_of_mark(page: BrowserPage) -> int:
    """Of the canvas of the reward, pixels of the colour of a resume's dots in the column where step 21 is."""
    return int(
        page.evaluate(
            """(() => {
              const figure = [...document.querySelectorAll('figure')].find((one) => one.querySelector('h3').textContent === 'Reward');
              const canvas = figure.querySelector('canvas');
              const over = figure.querySelector('.u-over');
              const left = over.offsetLeft + over.offsetWidth * (21 - 1) / 39;
              const image = canvas.getContext('2d').getImageData(Math.round(left) - 1, over.offsetTop, 3, over.offsetHeight).data;
              let found = 0;
              const near = (value, wanted) => Math.abs(value - wanted) < 12;
              const gray = (at) => image[at + 3] > 120 && near(image[at], 0x5d) && near(image[at + 2], 0x6c);
              for (let at = 0; at < image.length; at += 4) found += gray(at);
              return found;
            })()"""
        )
    )


def test_a_killed_run_says_where_it_ended(chromium: Chromium, tmp_path: Path) -> None:
    run = SyntheticRun(steps=57, max_steps=100, ends="killed", checkpoints=(25, 50), groups=2, logged_every=10).write(tmp_path / "run")
    with opened(chromium, written(tmp_path, run)) as page:
        said = text(page, ".banner")
        assert said.startswith("Ended early It died or was killed after step 57 of 100; the last line of its metrics was written at 20")
        assert "The last checkpoint is of step 50, so a resumed run makes 7 updates again." in said
        assert f"rlcore resume {run}" in said


def test_a_run_without_an_update_says_so(chromium: Chromium, tmp_path: Path) -> None:
    run = SyntheticRun(steps=0, ends="killed", eval_every=9, failures=0).write(tmp_path / "run")
    for path in (run / "eval" / "gsm8k" / "step-0.jsonl", run / "metrics.jsonl", run / "manifest.json"):
        path.unlink()
    with opened(chromium, written(tmp_path, run)) as page:
        assert "It ended before its first update" in text(page, ".banner")
        for section, said in {
            "learning": "no curves",
            "evaluation": "no evaluation",
            "rollouts": "no rollouts",
            "time": "No times",
        }.items():
            assert said in text(page, f"#{section}")


def test_seeds_are_a_mean_and_settings_that_differ_come_first(chromium: Chromium, tmp_path: Path) -> None:
    shape: dict[str, Any] = {"steps": 20, "groups": 2, "logged_every": 10}
    runs = [SyntheticRun(seed=seed, **shape).write(tmp_path / f"a{seed}") for seed in range(3)]
    runs.append(SyntheticRun(learning_rate=3e-6, **shape).write(tmp_path / "b0"))
    with opened(chromium, written(tmp_path, *runs)) as page:
        assert text(page, "h1") == "4 runs"
        lines = page.evaluate("[...document.querySelectorAll('header tbody tr')].map((row) => row.innerText.replace(/\\s+/g, ' '))")
        assert [line.split(" Finished")[0] for line in lines] == ["learning_rate 1.0e−6 · 3 seeds", "learning_rate 3.0e−6"]
        assert "±" in lines[0]
        assert "±" not in lines[1]
        assert "mean and 95 % interval over seeds" in text(page, "#evaluation")
        settings = page.evaluate("[...document.querySelectorAll('#configuration tbody tr')].map((row) => row.innerText.split(/\\s+/))")
        assert settings == [["run.seed", "0", "1", "2", "0"], ["training.learning_rate", *["0.000001"] * 3, "0.000003"]]


def shown_settings(page: Any) -> dict[str, str]:
    rows = page.evaluate(
        "[...document.querySelectorAll('#configuration tbody tr')].map((row) => [...row.children].map((cell) => cell.innerText))"
    )
    return {name: origin for name, _, origin in rows}


def test_settings_that_somebody_set_come_before_those_of_the_recipe(chromium: Chromium, tmp_path: Path) -> None:
    run = SyntheticRun(steps=3, groups=2).write(tmp_path / "run")
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["origins"] = {
        "training.learning_rate": "-lr",
        "run.seed": "mine.toml",
        "algorithm.name": "recipe grpo",
        "sampling.num_generations": "auto: one core",
        "rewards": "mine.toml",
        "rewards.0.name": "mine.toml",
        "rewards.0.weight": "default",
    }
    (run / "manifest.json").write_text(json.dumps(manifest))
    with opened(chromium, written(tmp_path, run)) as page:
        first = shown_settings(page)
        page.evaluate(
            "[...document.querySelectorAll('#configuration button')].find((one) => one.innerText === 'By recipe or derived').click()"
        )
        derived = shown_settings(page)
    assert {"training.learning_rate": "-lr", "run.seed": "mine.toml", "rewards[0].name": "mine.toml"}.items() <= first.items()
    assert not {"algorithm.name", "sampling.num_generations", "rewards[0].weight"} & set(first)
    assert set(derived.values()) == {"recipe grpo", "auto: one core"}


# --- nothing of a run acts ----------------------------------------------------------------------------------------------

HOSTILE = [
    "</script><script>owned()</script>",
    '<img src="https://evil.example/x.png" onerror="owned()"><style>body{display:none}</style>',
    '"><svg onload=owned()><a href="javascript:owned()">x</a>{{SCRIPT}}',
    "\u202eright to left\u2066 and \u0000 NUL \u001b[31m and \ud800 alone and \U0001f600",
    "__proto__ constructor toString",
    "",
]


def test_hostile_text_is_shown_and_does_nothing(chromium: Chromium, tmp_path: Path) -> None:
    def edit(row: dict[str, Any]) -> dict[str, Any]:
        text = HOSTILE[row["index"] % len(HOSTILE)]
        named = dict.fromkeys(("text", "reason", "parsed", "gold", "outcome", "finish", "kind"), text)
        return (
            row
            | named
            | {"prompt_id": row["prompt_id"] + HOSTILE[0]}
            | {"prompt": [{"role": text, "content": text}], "parts": {text: 1.0, "__proto__": 2.0}}
        )

    run = SyntheticRun(steps=3, groups=2, answers=6, eval_every=9, edit=edit, task="<b>task</b>").write(tmp_path / "<i>run & co")
    (run / "failures.jsonl").write_text(json.dumps({"step": 1, HOSTILE[0]: HOSTILE[1], "constructor": HOSTILE[3]}) + "\n")
    with opened(chromium, written(tmp_path, run)) as page:
        page.evaluate("window.owned = () => { window.wasOwned = true; }")
        seen = []
        for _ in range(6):
            seen.append(text(page, ".answer"))
            page.press("j")
        assert seen[0] == HOSTILE[0]
        assert seen[1].startswith("<img src=")
        said = "⟨U+202E⟩right to left⟨U+2066⟩ and ⟨U+0000⟩ NUL ⟨U+001B⟩[31m and \ufffd alone and \U0001f600"
        assert said in seen[3].replace("\ud800", "\ufffd")
        assert seen[5] == "(empty)"
        assert text(page, "h1") == "<i>run & co"
        assert page.evaluate("window.wasOwned ?? false") is False
        assert (
            page.evaluate("document.querySelectorAll('#page img, #page script, #page style, #page iframe, a[href^=\"javascript\"]').length")
            == 0
        )
        typed(page, "#search", "ONERROR=")
        assert listed(page) == 6


def test_a_conversation_shows_who_wrote_what_and_folds_calls(chromium: Chromium, tmp_path: Path) -> None:
    def edit(row: dict[str, Any]) -> dict[str, Any]:
        bad = HOSTILE[1]
        call = {"function": {"name": bad, "arguments": {bad: bad}}}
        turns = [
            {"role": "assistant", "content": "ask<r>3</r>", "inserted": [[3, 11]], "policy": True, "tokens": 2, "segment": 0},
            {"role": bad, "name": bad, "content": bad, "policy": False},
            {"role": "assistant", "content": "", "policy": True, "tokens": 7, "segment": 1, "tool_calls": [call]},
            {"role": "tool", "content": "line\n" * 100, "policy": False},
            {"role": "assistant", "content": "done", "policy": True, "tokens": 1, "segment": 1},
            {"role": "assistant", "name": "black", "content": "mine", "policy": False},
        ]
        return row | {
            "turns": turns,
            "branches": [[1, 1.5], [1, 0]],
            "turn_rewards": [0.5, 0.0, 0.25],
            "extra": {"calls": 1, "__proto__": 2},
        }

    run = SyntheticRun(steps=2, groups=1, answers=2, eval_every=9, edit=edit).write(tmp_path / "run")
    with opened(chromium, written(tmp_path, run)) as page:
        page.evaluate("window.owned = () => { window.wasOwned = true; }")
        marks = page.evaluate("[...document.querySelectorAll('.chat > *')].map((one) => one.className)")
        assert marks == ["gap branch", "turn policy", "gap branch", "turn", "turn policy", "turn", "turn policy", "turn"]
        assert text(page, ".gap.branch") == "branch 1 of 2 · reward 1.5"
        assert text(page, ".turn.policy .role") == "assistant · 2 tokens · reward 0.5"
        assert text(page, ".turn:last-child .role") == "assistant black · does not train"
        assert text(page, ".inserted") == "<r>3</r>"
        folded = page.evaluate("[...document.querySelectorAll('.chat details')].map((one) => [one.open, one.innerText])")
        assert [is_open for is_open, _ in folded] == [False, False]
        assert "Call" in folded[0][1]
        assert "Result" in folded[1][1]
        assert page.evaluate("window.wasOwned ?? false") is False
        assert page.evaluate("document.querySelectorAll('#page img, #page script, #page style').length") == 0
        colours = page.evaluate(
            "['.turn.policy > .text', '.turn:not(.policy) > .text', '.inserted']"
            ".map((one) => getComputedStyle(document.querySelector(one)).backgroundColor)"
        )
        assert colours[0] not in colours[1:]
        typed(page, "#search", "<r>3")
        assert listed(page) == 4
        page.resize(390, 900)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_policy_of_the_page_stops_what_would_be_put_into_it(chromium: Chromium, run: Path, tmp_path: Path) -> None:
    """The second guard: the first is that text is never parsed."""
    with chromium.open(written(tmp_path, run)) as page:
        page.wait(READY)
        refused = page.evaluate(
            """(async () => {
              const found = [];
              const trying = async (act) => { try { await act(); } catch (error) { found.push(error.name); } };
              const script = document.createElement('script');
              await trying(() => document.body.insertAdjacentHTML('beforeend', '<img src=x onerror="window.wasOwned = true">'));
              await trying(() => { script.textContent = 'window.wasOwned = true'; document.body.append(script); });
              await trying(() => fetch('https://evil.example/'));
              return [found, window.wasOwned ?? false];
            })()"""
        )
        assert refused == [["TypeError", "TypeError", "TypeError"], False]
        assert not [address for address in page.requests() if "evil" in address]


# --- the browser of rollouts --------------------------------------------------------------------------------------------


def test_filters_and_keys(chromium: Chromium, run: Path, tmp_path: Path) -> None:
    rows = [
        json.loads(line) for path in sorted((run / "rollouts").glob("*.gz")) for line in gzip.decompress(path.read_bytes()).splitlines()
    ]
    with opened(chromium, written(tmp_path, run)) as page:
        everything = listed(page)
        assert everything == len(rows) + 3 * 24 * 4
        typed(page, "[data-filter=source]", "0")
        assert listed(page) == len(rows)
        typed(page, "[data-filter=outcome]", "ok")
        assert listed(page) == sum(row["outcome"] == "ok" for row in rows)
        typed(page, "[data-filter=fromStep]", "11")
        typed(page, "[data-filter=toStep]", "12")
        typed(page, "[data-filter=fromReward]", "0.99")
        assert listed(page) == sum(row["outcome"] == "ok" and row["step"] in (11, 12) and row["reward"] >= 0.99 for row in rows)
        for name in ("fromStep", "toStep", "fromReward", "outcome"):
            typed(page, f"[data-filter={name}]", "")
        typed(page, "#search", "N = 17.")
        assert listed(page) == sum("let n = 17." in row["text"].lower() for row in rows) > 0
        typed(page, "#search", "no such text")
        assert "No rollout is like this" in text(page, ".detail")
        typed(page, "#search", "")
        page.press("j")
        page.press("j")
        page.press("k")
        assert text(page, ".detail-bar .quiet") == f"2 of {len(rows):,}"
        page.evaluate("document.querySelector('.list').focus()")
        page.press("ArrowDown")
        assert text(page, ".detail-bar .quiet").startswith("3 of")
        page.press("End")
        assert text(page, ".detail-bar .quiet").startswith(f"{len(rows):,} of")
        assert page.evaluate("document.querySelector('[aria-selected=true]').ariaPosInSet") == str(len(rows))
        assert page.evaluate("document.querySelectorAll('[role=option]').length") < 40
        page.press("/")
        assert page.evaluate("document.activeElement.id") == "search"
        typed(page, "[data-filter=order]", "-reward")
        assert text(page, ".row-reward") == "1"


def test_an_answer_is_explained_and_held_against_an_earlier_one(chromium: Chromium, tmp_path: Path) -> None:
    def edit(row: dict[str, Any]) -> dict[str, Any]:
        words = "first the sum then carry one" if row["step"] == 1 else "first a sum then carry two"
        return row | {"text": words, "prompt_id": "train:0", "prompt": [{"role": "user", "content": "add"}], "advantage": -1.25}

    run = SyntheticRun(steps=2, groups=1, answers=2, eval_every=9, edit=edit).write(tmp_path / "run")
    with opened(chromium, written(tmp_path, run)) as page:
        typed(page, "[data-filter=order]", "-step")
        assert "step 1" in text(page, ".detail-tags")  # the chosen one stays
        page.evaluate("document.querySelector('.list').focus()")
        page.press("Home")
        assert "step 2" in text(page, ".detail-tags")
        detail = text(page, ".detail-body")
        for said in ("Advantage\n−1.25", "boxed", "brevity", "Gold answer", "Its group", "Over training"):
            assert said in detail
        assert page.evaluate("[...document.querySelectorAll('.diff del')].map((one) => one.textContent)") == ["the", "one"]
        assert page.evaluate("[...document.querySelectorAll('.diff ins')].map((one) => one.textContent)") == ["a", "two"]
        assert text(page, ".diff").count("sum then carry") == 1


def test_a_text_that_was_cut_says_so_where_it_was(chromium: Chromium, run: Path, tmp_path: Path) -> None:
    with opened(chromium, written(tmp_path, run, characters=60)) as page:
        assert "left out here" in text(page, ".answer .cut")
        assert text(page, ".answer").rstrip().endswith("}.")
        assert "longer than 60 characters is left out" in text(page, "#rollouts .note")


def test_ten_thousand_rollouts_open_and_are_filtered(chromium: Chromium, tmp_path: Path) -> None:
    """How fast is what ``make bench-report`` measures; here, that all are there and that few of them are nodes."""
    run = SyntheticRun(steps=50, groups=25, eval_every=99).write(tmp_path / "run")
    with opened(chromium, written(tmp_path, run)) as page:
        assert listed(page) >= 10_000
        assert "10,000 rollouts" in text(page, "#rollouts .note")
        assert page.evaluate("document.querySelectorAll('*').length") < 5000
        typed(page, "#search", "boxed{17}")
        assert 0 < listed(page) < 10_000


# --- looks --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_nothing_is_wider_than_the_window(chromium: Chromium, run: Path, tmp_path: Path, width: int, dark: bool) -> None:
    with opened(chromium, written(tmp_path, run), width=width, dark=dark) as page:
        page.screenshot(tmp_path / "page.png", whole=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        light = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (light == "rgb(14, 16, 19)") is dark
        assert page.evaluate("document.querySelectorAll('canvas').length") > 15
        unnamed = page.evaluate(
            "[...document.querySelectorAll('button, input, select, [role=region], [role=listbox], figure')].filter((one) => !(one.ariaLabel"
            " || one.labels?.length || one.textContent.trim() || one.getAttribute('aria-labelledby'))).length"
        )
        assert unnamed == 0


def test_the_theme_is_changed_by_its_button(chromium: Chromium, run: Path, tmp_path: Path) -> None:
    with opened(chromium, written(tmp_path, run)) as page:
        seen = []
        for _ in range(3):
            page.evaluate("document.querySelector('button.icon').click()")
            seen.append(
                (
                    page.evaluate("document.documentElement.dataset.theme ?? ''"),
                    page.evaluate("document.querySelector('button.icon').ariaLabel"),
                )
            )
        assert [theme for theme, _ in seen] == ["light", "dark", ""]
        assert seen[1][1].startswith("Theme: Dark")


# --- live ---------------------------------------------------------------------------------------------------------------


@contextmanager
def served(*runs: Path) -> Iterator[PageServer]:
    with PageServer(ReportContent(runs, Bounds(2000, 6000)), 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


# What the reader looks at stays where it is in the window: the page above may grow by a line, and the browser then scrolls by as much.
PLACE = (
    "[Math.round(document.querySelector('#rollouts').getBoundingClientRect().top),"
    " document.querySelector('.list').scrollTop, document.querySelector('.answer').textContent]"
)


def test_a_live_page_keeps_up_and_keeps_the_place(chromium: Chromium, tmp_path: Path) -> None:
    run = SyntheticRun(steps=12, max_steps=100, groups=4, ends="killed", eval_every=99, checkpoints=(8,)).write(tmp_path / "run")
    with served(run) as server, chromium.open(server.url) as page:
        page.wait(READY)
        page.wait("document.querySelector('#connection').textContent === 'live'")
        typed(page, "#search", "train")
        for _ in range(40):
            page.press("j")
        page.evaluate("document.querySelector('#rollouts').scrollIntoView({behavior: 'instant'})")
        before = page.evaluate(PLACE)

        SyntheticRun(steps=20, max_steps=100, groups=4, ends="killed", eval_every=99).write(tmp_path / "more")
        for step in range(13, 21):
            (tmp_path / "more" / "rollouts" / f"step-{step}.jsonl.gz").rename(run / "rollouts" / f"step-{step}.jsonl.gz")
        (tmp_path / "more" / "metrics.jsonl").replace(run / "metrics.jsonl")
        page.wait("document.querySelector('.banner').textContent.includes('after step 20')")
        page.wait("document.querySelector('#rollouts .note').textContent.startsWith('640 rollouts')")
        assert page.evaluate("document.querySelector('#search').value") == "train"
        assert page.evaluate(PLACE) == before

        for step in range(9, 21):  # the run goes back to its checkpoint and goes on
            (run / "rollouts" / f"step-{step}.jsonl.gz").unlink()
        lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
        kept = [line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= 8]
        (run / "metrics.jsonl").write_text("".join(kept))
        page.wait("document.querySelector('.banner').textContent.includes('after step 8')")
        page.wait("document.querySelector('#rollouts .note').textContent.startsWith('256 rollouts')")
        assert page.problems() == []


def test_a_page_whose_server_has_ended_says_so(chromium: Chromium, run: Path) -> None:
    watching = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "watch", str(run)], env=os.environ | QUIET, stdout=subprocess.PIPE, text=True
    )
    assert watching.stdout is not None
    with watching, watching.stdout:
        url = watching.stdout.readline().split()[2]
        with chromium.open(url) as page:
            page.wait(READY)
            page.wait("document.querySelector('.row-answer') !== null")
            watching.send_signal(signal.SIGINT)
            assert watching.wait(timeout=60) == 0
            page.wait("document.querySelector('#connection').textContent.includes('has ended')")
            assert text(page, "h1") == run.name


@pytest.mark.parametrize(("width", "folded"), [(390, True), (1280, False)])
def test_settings_are_folded_on_a_phone(chromium: Chromium, run: Path, tmp_path: Path, width: int, folded: bool) -> None:
    with opened(chromium, written(tmp_path, run), width=width) as page:
        assert page.evaluate("!document.querySelector('#configuration details').open") is folded
        assert page.evaluate("document.querySelector('#configuration summary').offsetHeight > 0") is folded


def test_charts_carry_the_names_of_the_field(chromium: Chromium, tmp_path: Path) -> None:
    run = SyntheticRun(steps=3, groups=2).write(tmp_path / "run")
    rows = [json.loads(line) | {"kl_reference": 0.1, "kl_old": 0.1} for line in (run / "metrics.jsonl").read_text().splitlines()]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with opened(chromium, written(tmp_path, run)) as page:
        titles = " ".join(page.evaluate("[...document.querySelectorAll('#learning .chart h3')].map((title) => title.innerText)"))
    assert [word for word in ("KL", "Ratio", "Clip fraction", "Entropy") if word not in titles] == []
