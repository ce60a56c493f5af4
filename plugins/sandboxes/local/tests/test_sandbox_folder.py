"""The private folder of level landlock: counted and emptied, whatever was made in it."""

from __future__ import annotations

import mmap
import os
import socket
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit_sandbox import opened, run
from rlcore_plugin_sandbox.jail import program_folder

NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=12).filter(
    lambda name: name not in (".", "..")
)
KINDS = st.sampled_from(["file", "folder", "locked", "link"])


def make(where: Path, tree: list[tuple[list[str], str]]) -> None:
    for names, kind in tree:
        path = where
        try:
            for name in names[:-1]:
                path /= name
                path.mkdir(exist_ok=True)
            path /= names[-1]
            if kind == "link":
                path.symlink_to("/etc")
            elif kind == "file":
                path.write_bytes(b"x")
            else:
                path.mkdir(0o700 if kind == "folder" else 0)
        except OSError:
            continue  # a file where a folder was to be, or the other way round


@settings(max_examples=50, deadline=None)
@given(tree=st.lists(st.tuples(st.lists(NAMES, min_size=1, max_size=5), KINDS), max_size=12))
def test_any_tree_is_emptied(tmp_path_factory, tree) -> None:
    where = tmp_path_factory.mktemp("home")
    make(where, tree)
    if not any(kind == "locked" for _, kind in tree):  # which only root looks into; to others it is too much
        assert program_folder.stored(str(where), 1000)[0] == sum(len(folders) + len(files) for _, folders, files in os.walk(where))
    there = sum(len(folders) + len(files) for _, folders, files in os.walk(where))
    assert program_folder.empty(str(where)) >= there  # more, if another user than root may not look into a folder
    assert list(where.iterdir()) == []


def test_a_tree_deeper_than_any_path_is_emptied(tmp_path) -> None:
    home, before = tmp_path / "home", Path.cwd()
    home.mkdir()
    os.chdir(home)
    try:
        for _ in range(300):
            Path("d" * 200).mkdir()
            os.chdir("d" * 200)
    finally:
        os.chdir(before)
    assert program_folder.stored(str(home), 1000)[0] == 1001  # cannot be counted, and so is too much
    program_folder.remove(str(home))
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_removed_and_not_followed(tmp_path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir(0o755)
    (kept / "file").touch()
    home = tmp_path / "home"
    home.mkdir()
    (home / "link").symlink_to(kept)
    (home / "sub").mkdir()
    (home / "sub" / "link").symlink_to(kept)
    program_folder.empty(str(home))
    assert (kept / "file").exists()
    assert kept.stat().st_mode & 0o777 == 0o755


def held() -> program_folder.Descriptors:
    return program_folder.descriptors("/proc/self", tempfile.gettempdir())


def test_what_is_unlinked_and_open_counts(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = held().unlinked  # of pytest's own
    with (tmp_path / "x").open("wb") as file:
        (tmp_path / "x").unlink()
        file.write(b"x" * 100_000)
        file.flush()
        with (tmp_path / "y").open("wb") as other:
            other.write(b"x" * 100_000)
            (inode,) = held().unlinked.keys() - before.keys()
            assert 100_000 <= held().unlinked[inode] < 200_000


def test_sockets_and_pipes_count() -> None:
    before = held()
    one, other = socket.socketpair()
    with one, other:
        for descriptor in (ends := os.pipe()):
            assert descriptor >= 0
        now = held()
        for descriptor in ends:
            os.close(descriptor)
    assert (now.sockets - before.sockets, now.pipes - before.pipes) == (2, 2)


def test_a_map_of_a_file_that_is_gone_is_found(tmp_path) -> None:
    """By its inode, whatever its name; not one whose name only says that it is gone."""
    with (tmp_path / "a\nb c").open("w+b") as gone, (tmp_path / "x (deleted)").open("w+b") as there:
        for file in (gone, there):
            file.write(b"x" * 5000)
            file.flush()
        with mmap.mmap(gone.fileno(), 5000), mmap.mmap(there.fileno(), 5000):
            assert program_folder.mapped("/proc/self", str(tmp_path)) - folder_inodes(tmp_path) == set()
            (tmp_path / "a\nb c").unlink()
            assert program_folder.mapped("/proc/self", str(tmp_path)) - folder_inodes(tmp_path) == {os.fstat(gone.fileno()).st_ino}


def folder_inodes(folder: Path) -> set[int]:
    found: set[int] = set()
    program_folder.stored(str(folder), 100, found)
    return found


def test_counting_stops_soon_after_the_limit(tmp_path) -> None:
    for number in range(50):
        (tmp_path / str(number)).touch()
    assert program_folder.stored(str(tmp_path), 10)[0] == 11


def test_removing_what_is_gone_says_nothing(tmp_path) -> None:
    program_folder.remove(str(tmp_path / "never"))


def test_an_older_landlock_does_not_let_readable_files_be_emptied(host) -> None:
    """Before Linux 6.2 its rules know no truncation: the filter must."""
    with opened("landlock", readable=(host.given["folder"],)) as box:
        ran = run(box, f"import os\nos.open({host.given['secret']!r}, os.O_RDONLY | os.O_TRUNC)")
        assert b"Operation not permitted" in ran.stderr
    assert Path(host.given["secret"]).read_text() == "s3cr3t"


@pytest.mark.parametrize("name", ["x", "..x", "-rf", " ", "'", "$(id)", "\n", "é", "\udcff"])
def test_odd_names_do_not_stay(box, name: str) -> None:
    assert run(box, f"import os\nos.makedirs({name!r} + '/a/b'); open({name!r} + '/a/c', 'w').close()").ok
    assert run(box, "import os; print(os.listdir('.'))").stdout == b"[]\n"


def test_a_list_of_maps_that_is_too_long_is_not_read_to_its_end(tmp_path, monkeypatch):
    """Paths of maps may be made long after the maps are made, and the kernel writes them all out."""
    monkeypatch.setattr(program_folder, "_LONGEST_MAPS", 1 << 18)
    line = f"7f0000000000-7f0000001000 r--p 00000000 fe:00 77 {tmp_path}/gone (deleted)\n"
    (tmp_path / "maps").write_text(line * 3)
    assert program_folder.mapped(str(tmp_path), str(tmp_path)) == {77}
    (tmp_path / "maps").write_text(line * 9000)
    with pytest.raises(PermissionError):
        program_folder.mapped(str(tmp_path), str(tmp_path))
