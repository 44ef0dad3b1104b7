"""What changed between two releases, for people and for programs."""

import json

from launch.release import diff, freeze


def test_one_changed_flag_reads_as_one_change(changed):
    before = freeze(changed(), check_paths=False)
    after = freeze(changed(("262144", "131072"), ("0.90", "0.90, --enable-metrics")), check_paths=False)
    changes = diff(before, after)
    assert [(one.where, one.before, one.after) for one in changes.changes] == [
        ("flags.--context-length", "262144", "131072"),
        ("flags.--enable-metrics", None, True),
    ]
    text = changes.text()
    assert "  flags.--context-length: 262144 → 131072\n" in text
    assert "  flags.--enable-metrics: (absent) → (given)\n" in text
    assert "  -  --context-length 262144 \\\n" in text
    document = json.loads(json.dumps(changes.to_json()))
    assert (document["before"], document["after"]) == (before.id, after.id)
    assert document["changes"][0] == {
        "part": "topology",
        "where": "flags.--context-length",
        "before": "262144",
        "after": "131072",
    }
    assert set(document["scripts"]) == {"a", "b"}


def test_flags_in_another_order_are_told(changed):
    before = freeze(changed(), check_paths=False)
    after = freeze(
        changed(("--tp-size, 2, --context-length, 262144", "--context-length, 262144, --tp-size, 2")), check_paths=False
    )
    assert [one.where for one in diff(before, after).changes] == ["flags (order)"]


def test_instances_router_and_model_files_are_compared(changed, model):
    before = changed(("/models/Qwen3.8-27B", str(model)), ("router: {kind: smg, flags: [--policy, cache_aware]}\n", ""))
    one = freeze(before, check_paths=False)
    (model / "config.json").write_text('{"architectures": ["Other"]}')
    two = freeze(before, check_paths=False)
    assert [change.where for change in diff(one, two).changes] == ["model.files.config.json"]
    three = freeze(changed(("/models/Qwen3.8-27B", str(model)), ("b: {gpus: 2}", "c: {gpus: 4}")), check_paths=False)
    places = {change.where for change in diff(two, three).changes}
    assert {"instances.b", "instances.c", "router"} <= places


def test_the_same_release_does_not_differ(changed):
    release = freeze(changed(), check_paths=False)
    assert not diff(release, release)
    assert "do not differ" in diff(release, release).text()
