"""Releases: one digest for what runs, saved whole, read back unharmed."""

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launch.errors import ReleaseError, ReleaseNotFound
from launch.release import freeze, list_releases, load_release, save
from launch.topology import Topology

EMULATED = {
    "name": "demo",
    "serves": ["m"],
    "engine": "emulator",
    "flags": ["--itl-ms", "5", "--tp", "1"],
    "env": {"A": "1", "B": "2"},
    "instances": {"a": {"gpus": 1}, "b": {"gpus": 1}},
}


def emulated(**changes):
    return Topology.model_validate(EMULATED | changes)


def test_a_release_is_named_after_its_digest():
    release = freeze(emulated())
    assert release.id == f"demo@{release.digest[:8]}"
    assert release.manifest["id"] == release.id
    assert freeze(emulated()) == release


@given(st.permutations(sorted(EMULATED)), st.permutations(["A", "B"]))
@settings(max_examples=10, deadline=None)
def test_the_order_of_keys_does_not_change_the_digest(order, names):
    shuffled = {key: EMULATED[key] for key in order} | {"env": {name: EMULATED["env"][name] for name in names}}
    assert freeze(Topology.model_validate(shuffled)).digest == freeze(emulated()).digest


@pytest.mark.parametrize(
    "changes",
    [
        {"flags": ["--tp", "1", "--itl-ms", "5"]},
        {"env": {"A": "1"}},
        {"instances": {"a": {"gpus": 1}}},
        {"instances": {"a": {"gpus": 1}, "b": {"gpus": [1]}}},
        {"capability": {"thinking": "none"}},
        {"gates": "strict"},
        {"start_timeout_s": 60},
        {"env_file": "/dev/null"},
        {"serves": ["n"]},
    ],
)
def test_what_decides_what_runs_changes_the_digest(changes):
    assert freeze(emulated(**changes), check_paths=False).digest != freeze(emulated(), check_paths=False).digest


def test_notes_do_not():
    assert freeze(emulated(notes="better words")).digest == freeze(emulated()).digest


def test_instances_tell_what_their_starter_must_know(changed):
    release = freeze(changed(), check_paths=False)
    a, b, router = release.instances()
    assert (a.name, a.role, a.gpu_count, a.gpus, a.fronted, a.start_after) == ("a", "engine", 2, None, False, ())
    assert (b.health_path, b.port_count) == ("/health", 10)
    assert (router.name, router.role, router.gpu_count) == ("router", "router", 0)
    assert (router.health_path, router.start_after, router.fronted) == ("/readiness", ("a", "b"), True)
    assert set(release.scripts) == {"a", "b", "router"}
    alone = freeze(emulated(instances={"b": {"gpus": ["GPU-1", 3]}, "a": {"gpus": 0}})).instances()
    assert [(one.name, one.gpus, one.gpu_count, one.fronted) for one in alone] == [
        ("a", None, 0, True),
        ("b", ("GPU-1", "3"), 2, True),
    ]


def test_a_saved_release_is_the_same_release(tmp_path, changed):
    release = freeze(changed(), check_paths=False)
    folder = save(release, tmp_path / "releases")
    assert folder == tmp_path / "releases" / release.id
    assert load_release(tmp_path / "releases", release.id) == release
    files = {str(file.relative_to(folder)): file.stat().st_mode & 0o777 for file in folder.rglob("*") if file.is_file()}
    assert files == {
        "topology.yaml": 0o440,
        "manifest.json": 0o440,
        "scripts/a.sh": 0o500,
        "scripts/b.sh": 0o500,
        "scripts/router.sh": 0o500,
    }
    assert (folder / "scripts" / "a.sh").read_text() == release.scripts["a"]
    assert save(release, tmp_path / "releases") == folder
    assert [entry.name for entry in (tmp_path / "releases").iterdir()] == [release.id]


def test_a_release_is_found_by_its_beginning_or_its_name(tmp_path):
    old, new = freeze(emulated()), freeze(emulated(serves=["n"]))
    other = freeze(emulated(name="demo-2"))
    for number, release in enumerate((old, other, new)):
        os.utime(save(release, tmp_path), ns=(number * 10**9, number * 10**9))
    assert list_releases(tmp_path) == (new.id, other.id, old.id)
    assert load_release(tmp_path, "demo").id == new.id
    assert load_release(tmp_path, old.id[:9]).id == old.id
    save(old, tmp_path)
    assert load_release(tmp_path, "demo").id == old.id
    with pytest.raises(ReleaseNotFound, match="begins the ids of 3 releases"):
        load_release(tmp_path, "dem")
    with pytest.raises(ReleaseNotFound, match=r"there is no release 'nope'; saved are demo") as refused:
        load_release(tmp_path, "nope")
    assert refused.value.exit_code == 3
    for wanted in ("", "../x", "."):
        with pytest.raises(ReleaseNotFound):
            load_release(tmp_path, wanted)
    with pytest.raises(ReleaseNotFound, match="none is saved yet"):
        load_release(tmp_path / "empty", "demo")


@pytest.mark.parametrize("harm", ["script", "topology", "manifest", "missing"])
def test_a_release_that_was_changed_on_disk_is_not_used(tmp_path, harm):
    release = freeze(emulated())
    folder = save(release, tmp_path)
    file = {
        "script": folder / "scripts" / "a.sh",
        "topology": folder / "topology.yaml",
        "manifest": folder / "manifest.json",
        "missing": folder / "scripts" / "b.sh",
    }[harm]
    file.chmod(0o600)
    if harm == "missing":
        file.unlink()
    elif harm == "manifest":
        document = json.loads(file.read_text())
        document["identity"]["engine"]["version"] = "9.9"
        file.write_text(json.dumps(document))
    else:
        file.write_text(file.read_text().replace("5", "6"))
    with pytest.raises(ReleaseError, match="freeze its topology again"):
        load_release(tmp_path, release.id)


def test_a_release_that_cannot_be_saved_leaves_nothing(tmp_path):
    root = tmp_path / "releases"
    root.write_text("a file is in the way")
    with pytest.raises(ReleaseError, match="the release cannot be saved"):
        save(freeze(emulated()), root)


def test_a_release_stays_readable_when_rules_become_stricter(tmp_path):
    release = freeze(emulated(flags=["--port-file", "/tmp/p", "--port", "1"]), check_paths=False)
    save(release, tmp_path)
    assert load_release(tmp_path, "demo").topology.flags[-1] == "1"
