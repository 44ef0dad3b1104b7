"""A text file is there as a whole or as it was, also where the disk is full."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from small_disk_kit import fill, small_disk

from controller import wholefile


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_new_text_takes_the_place_of_the_old(tmp_path: Path) -> None:
    file = tmp_path / "told.json"
    wholefile.put(file, "é\ud800\n", mode=0o600)
    assert (file.read_bytes(), mode_of(file)) == ("é?\n".encode(), 0o600)
    wholefile.put(file, "two", mode=0o640, durable=False)
    assert (file.read_text(), mode_of(file), [p.name for p in tmp_path.iterdir()]) == ("two", 0o640, ["told.json"])


def test_without_a_mode_the_umask_has_its_say(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        wholefile.put(tmp_path / "a", "text")
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "a") == 0o640


def test_what_somebody_left_who_was_killed_is_not_taken_over(tmp_path: Path) -> None:
    left = tmp_path / ".a.new"
    left.write_text("half of it")
    left.chmod(0o666)
    wholefile.put(tmp_path / "a", "all of it", mode=0o600)
    assert ((tmp_path / "a").read_text(), mode_of(tmp_path / "a")) == ("all of it", 0o600)


def test_a_link_is_replaced_and_what_it_points_to_stays(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("somebody's")
    (tmp_path / "a").symlink_to("other")
    wholefile.put(tmp_path / "a", "mine")
    assert ((tmp_path / "other").read_text(), (tmp_path / "a").is_symlink()) == ("somebody's", False)


def test_on_a_full_disk_the_old_file_stays_and_half_of_the_new_one_goes(tmp_path: Path) -> None:
    with small_disk(tmp_path, 1) as place:
        file = place / "a"
        wholefile.put(file, "old")
        fill(place)
        with pytest.raises(OSError, match="No space"):
            wholefile.put(file, "n" * 100_000)
        assert (file.read_text(), sorted(p.name for p in place.iterdir())) == ("old", ["a", "hog"])
