"""`make gpu`: first light on one CUDA GPU, without network. Parts that have run are not run again. The last line is one JSON object."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.packages import needs_site, path_of, prepare_site, refuse_incomplete
from benchmarks.gpu.parts import PARTS, Part, choose
from benchmarks.gpu.refused import Refused
from benchmarks.gpu.results import FILE, Results
from benchmarks.gpu.runner import Runner
from benchmarks.gpu.setting import DOCUMENT, REPOSITORY
from benchmarks.gpu.table import check_page, markdown, put_into

INTERRUPTED = 130


def main() -> None:
    """As a process: SIGTERM and SIGHUP end it like an error, so that the part that is running, and what it holds of the card, ends too."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP, and means it
            signal.signal(number, _end)
    raise SystemExit(command(sys.argv[1:]))


def _end(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)


def command(words: Sequence[str]) -> int:
    """Prepare the path, run what is left to run, show the tables; 1 if a part that was asked for failed, 2 for what was typed wrong, 130
    for Ctrl-C."""
    args = _parser().parse_args(words)
    if args.list:
        print("\n".join(f"{part.name:16} {part.what}" for part in PARTS))
        return 0
    try:
        return _run(args)
    except Refused as refusal:
        print(f"make gpu: {refusal}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("make gpu: stopped; parts that ended are written down, the same command goes on with the others", file=sys.stderr)
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument(
        "--device", type=str.lower, choices=["cuda", "cpu"], default="cuda", help="cpu: with tiny models, to try the parts (cuda)"
    )
    parser.add_argument("--size", choices=["full", "tiny"], help="tiny: seconds instead of minutes (full on cuda, tiny on cpu)")
    parser.add_argument("--only", action="append", default=[], metavar="PART", help="this part; may be given several times")
    parser.add_argument("--again", action="store_true", help="run parts that have run before, too")
    parser.add_argument("--list", action="store_true", help="show the parts and end")
    parser.add_argument("--minutes", type=float, help="end within these: begin no part that may take longer, the next call goes on")
    parser.add_argument("--folder", type=Path, default=REPOSITORY / ".gpu", help="wheels in it, results and logs out of it (.gpu)")
    parser.add_argument(
        "--document",
        type=Path,
        nargs="?",
        const=DOCUMENT,
        metavar="FILE",
        help="run nothing; put the results that are there into FILE (docs/maintainers/gpu.md)",
    )
    return parser


def _run(args: argparse.Namespace) -> int:
    chosen = choose(args.only)
    tiny = args.size == "tiny" or (args.size is None and args.device == "cpu")
    until = None if args.minutes is None else time.monotonic() + 60 * args.minutes
    folder = args.folder / f"{args.device}-{'tiny' if tiny else 'full'}"
    results = Results(folder / FILE)
    if args.document is not None:
        put_into(args.document, results.lines())
        return 0
    document = args.device == "cuda" and not tiny
    if document:
        check_page(DOCUMENT)
    site = prepare_site(args.folder / "wheels", args.folder / "site") if needs_site() else None
    refuse_incomplete(path_of(site))
    _check_device(args.device)
    runner = Runner(device=args.device, tiny=tiny, folder=folder, path=path_of(site), say=_say, until=until)
    left = runner.run(chosen, again=args.again)
    lines = results.lines()
    text = markdown(lines)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.md").write_text(text + "\n", encoding="utf-8")
    _say(f"\n{text}\n")
    code = _close(chosen, left, lines, results.path)
    if document:
        _document(lines)
    return code


def _document(lines: dict[str, dict[str, object]]) -> None:
    """What ran is written down and shown by now, so a page that cannot take it fails nothing."""
    try:
        put_into(DOCUMENT, lines)
    except Refused as refusal:
        _say(f"the page stays as it is: {refusal}")


def _check_device(device: str) -> None:
    """Refused where torch finds no card. Asked in this process: torch is the machine's own."""
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise Refused("torch finds no CUDA device here; DEVICE=cpu tries the parts on a CPU with tiny models")


def _close(chosen: list[Part], left: list[Part], lines: dict[str, dict[str, object]], results: Path) -> int:
    """Print the JSON object. Only parts that were asked for count as failed: lines of others may be old."""
    if left:
        _say(f"no time was left for {', '.join(part.name for part in left)}; the same command goes on with them")
    failed = [part.name for part in chosen if part.name in lines and lines[part.name]["status"] == "failed"]
    parts = {name: {key: line[key] for key in ("status", "said", "seconds", "figures")} for name, line in lines.items()}
    machines = [line["machine"] for line in lines.values() if line["machine"]]
    print(
        json.dumps(
            {
                "failed": failed,
                "left": [part.name for part in left],
                "machine": machines[-1] if machines else {},
                "results": str(results),
                "parts": parts,
            },
            ensure_ascii=False,
        ),
        flush=True,
    )
    return 1 if failed else 0


def _say(line: str) -> None:
    """On the standard error, so that the standard output holds the JSON object alone."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
