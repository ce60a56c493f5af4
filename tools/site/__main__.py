"""Build the site: ``python -m tools.site [--out FOLDER]``. Opens no network connection. The last line is one JSON object.

The pages stay as they are in the repository, where their links work, too. This command copies them, turns links to other files of the
repository into links of the site, adds the reference of the Python API, and calls Sphinx, whose warnings end it with exit code 1.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MAP = DOCS / "README.md"
PICTURES = (".svg", ".png")
_LINK = re.compile(r"(\]\()(?!https?:|mailto:|#)([^()\s#]*)(#[^()\s]*)?(\))")


def main() -> int:
    """Write the sources, build, and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "docs", help="folder of the site [build/docs]")
    out = parser.parse_args().out.absolute()
    source, begun = out.with_name(f"{out.name}-source"), time.monotonic()
    for made in (source, Path(f"{source}-trees")):
        shutil.rmtree(made, ignore_errors=True)
    shutil.rmtree(out, ignore_errors=True)
    write_source(source)
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", f"{source}-trees", source, out], check=False
    )
    pages = list(out.rglob("*.html"))
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(json.dumps({"site": str(out), "pages": len(pages), "mb": round(size / 1e6, 1), "seconds": round(time.monotonic() - begun, 1)}))
    return 1 if done.returncode else 0


def write_source(source: Path) -> None:
    """Write the pages as Sphinx reads them."""
    pages = site_pages()
    for path, name in pages.items():
        target = source / f"{name}.md"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(relinked(path, pages), encoding="utf-8")
    for picture in (path for path in DOCS.rglob("*") if path.suffix in PICTURES):
        shutil.copyfile(picture, source / picture.relative_to(DOCS))
    here = Path(__file__).parent
    shutil.copyfile(here / "conf.py", source / "conf.py")
    shutil.copytree(here / "static", source / "_static")
    (source / "files").mkdir()
    shutil.copyfile(ROOT / "examples" / "first_steps.ipynb", source / "files" / "first_steps.ipynb")
    api = write_api(source / "api")
    index = source / "index.md"
    index.write_text(index.read_text(encoding="utf-8") + contents(pages, api), encoding="utf-8")


def site_pages() -> dict[Path, str]:
    """Return file of the repository -> name on the site, without its suffix."""
    pages = {path: path.relative_to(DOCS).with_suffix("").as_posix() for path in sorted(DOCS.rglob("*.md"))}
    packages = {path: f"packages/{path.parent.name}" for path in sorted(ROOT.glob("plugins/*/*/README.md"))}
    return {**pages, **packages, MAP: "index", ROOT / "README.md": "readme", ROOT / "CHANGELOG.md": "changelog"}


def relinked(path: Path, pages: dict[Path, str]) -> str:
    """Return the text of a page with links of the site. A link to a file that is not on the site becomes plain text."""
    depth = pages[path].count("/")

    def link(match: re.Match[str]) -> str:
        target = (path.parent / match[2]).resolve()
        if target in pages:
            return f"{match[1]}{'../' * depth}{pages[target]}.md{match[3] or ''}{match[4]}"
        if target.suffix in PICTURES:
            return f"{match[1]}{'../' * depth}{target.relative_to(DOCS)}{match[4]}"
        if target.suffix == ".ipynb":
            return f"{match[1]}{'../' * depth}files/{target.name}{match[4]}"
        return "]{.file}"

    return _LINK.sub(link, path.read_text(encoding="utf-8"))


def contents(pages: dict[Path, str], api: Sequence[str]) -> str:
    """Return the tables of contents, one for each section of the map."""
    sections = re.split(r"^## ", MAP.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    found = {section.partition("\n")[0]: re.findall(r"\]\(([\w/]+)\.md", section) for section in sections}
    first = next(iter(found))
    found[first].insert(0, "readme")
    packages = [name for name in pages.values() if name.startswith("packages/")]
    found = {**found, "Python API": list(api), "Packages": packages, "Project": ["changelog"]}
    trees = (f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(names) + "\n```\n" for caption, names in found.items())
    return "".join(trees)


def write_api(folder: Path) -> list[str]:
    """Write a page for each public module, and return their names."""
    folder.mkdir()
    names = ["rlcore.api", *(f"rlcore.api.{path.stem}" for path in sorted((ROOT / "rlcore" / "api").glob("[a-z]*.py")))]
    names += ["rlcore.learning", "rlcore.testing"]
    seen: dict[int, str] = {}
    for name in names:
        (folder / f"{name}.md").write_text(api_page(importlib.import_module(name), seen), encoding="utf-8")
    return [f"api/{name}" for name in names]


def api_page(module: ModuleType, seen: dict[int, str]) -> str:
    """Return the page of one module: its docstring as it is, then each of its names without what it inherits.

    :param seen: the names by identity that an earlier page has; this function adds to it."""
    items = []
    for name in sorted(module.__all__):
        found, full = getattr(module, name), f"{module.__name__}.{name}"
        if id(found) in seen:
            items.append(f"``{full}`` is :py:obj:`{seen[id(found)]}`.\n")
        elif callable(found):
            seen[id(found)] = full
            is_class = inspect.isclass(found)
            items.append(f".. auto{'class' if is_class else 'function'}:: {full}\n" + "   :members:\n" * is_class)
    text = inspect.getdoc(module) or ""
    return f"# {module.__name__}\n\n```text\n{text}\n```\n\n```{{eval-rst}}\n" + "\n".join(items) + "```\n"


if __name__ == "__main__":
    raise SystemExit(main())
