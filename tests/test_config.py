"""`cutover.yaml`: defaults, places, and refusals that name file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.config import load_config, parse_config
from controller.errors import ExitCode, UsageError


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "cutover.yaml"
    path.write_text(text)
    return path


def test_works_without_a_file(tmp_path):
    config = load_config(None, {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "run")})
    assert (config.public, config.preview, config.slots) == ("127.0.0.1:8000", "127.0.0.1:8009", 32)
    assert config.policy.port_first == 18000
    assert config.policy.bake_s == 600.0


def test_places_in_order(tmp_path):
    named = write(tmp_path, "public: 127.0.0.1:1111\n")
    usual = tmp_path / ".config" / "cutover" / "cutover.yaml"
    usual.parent.mkdir(parents=True)
    usual.write_text("public: 127.0.0.1:2222\n")
    environment = {"HOME": str(tmp_path)}
    if not Path("/etc/cutover/cutover.yaml").exists():
        assert load_config(None, environment).public.endswith("2222")
    assert load_config(None, {**environment, "CUTOVER_CONFIG": str(named)}).public.endswith("1111")
    assert load_config(usual, {**environment, "CUTOVER_CONFIG": str(named)}).public.endswith("2222")


def test_a_state_directory_of_ones_own_has_a_socket_of_its_own(tmp_path):
    config = load_config(write(tmp_path, f"state_dir: {tmp_path}/s\n"), {})
    assert config.socket == tmp_path / "s" / "cutover.sock"


def test_engines_get_a_key_unless_it_is_switched_off(tmp_path):
    """Bare `off` is false to YAML 1.1."""
    assert load_config(write(tmp_path, "slots: 4\n"), {}).engine_keys == "auto"
    for text in ("engine_keys: off\n", 'engine_keys: "off"\n'):
        assert load_config(write(tmp_path, text), {}).engine_keys == "off"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("publik: 127.0.0.1:8000", r":1: unknown key `publik`; did you mean `public`\?"),
        ("slots: 32\nbake: {secons: 3}", r":2: unknown key `bake.secons`; did you mean `seconds`\?"),
        ("public: somewhere", r"`public`: expected host:port"),
        ("state_dir: here", r":1: `state_dir`: expected an absolute path"),
        ("haproxy: haproxy", r"`haproxy`: expected an absolute path"),
        ("instance_ports: 18000", "expected first-last"),
        ("retry_after_s: 300", "less than or equal to 60"),
        ("gpus: {kind: amd}", "`gpus.kind`"),
        ("slots: 3\nslots: 4", "slots"),
        ("sleep: {level: 2}", r":1: `sleep.level`: expected 1: at level 2 an engine discards its weights"),
        ("engine_keys: yes", r":1: `engine_keys`: Input should be 'auto' or 'off' \(got True\)"),
        ("sleep: yes", r"`sleep`: expected `off`, or a mapping"),
        ("sleep: {dedline_s: 3}", r"unknown key `sleep.dedline_s`; did you mean `deadline_s`"),
        ("schedule: '0 2 * * *'", r'`schedule`: expected a mapping, for example \{start: "02:00", duration: 4h'),
        ("schedule: {start: 2, duration: 4h, timezone: UTC}", r'`schedule.start`: expected a time of day .*"02:00"'),
        ("schedule: {start: '02:00', duration: 4h, timezone: localtime}", "`schedule.timezone`: expected a name of"),
        ("schedule: {start: '02:00', duration: 4h, timezone: right/Asia/Taipei}", "did you mean Asia/Taipei"),
        ("a: &x 1\nb: *x", "alias"),
        ("public: [", "cutover.yaml"),
    ],
)
def test_refusals(tmp_path, text, expected):
    with pytest.raises(UsageError, match=expected) as caught:
        load_config(write(tmp_path, text), {})
    assert caught.value.exit_code == ExitCode.USAGE
    assert "\n" not in str(caught.value)


def test_everything_that_is_wrong_is_told_at_once_in_the_order_of_the_file(tmp_path):
    """An unknown key is not hidden by one that is missing, nor a duration by a time of day."""
    text = (
        "bakee: {seconds: 3}\n"
        "schedule: {start: '25:00', duration: 1s, timezone: Mars, dais: daily}\n"
        "schedules:\n  noon: {duration: 1h, timezone: UTC}\n  Early: {start: '01:00', duration: 1h, timezone: UTC}\n"
        "source: here\n"
        "retry_after_s: 300\n"
    )
    file = write(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        load_config(file, {})
    count, *told = str(caught.value).split("\n")
    assert count == f"{file}: 9 mistakes"
    begins = [
        "1: unknown key `bakee`; did you mean `bake`?",
        "2: `schedule.duration`: expected a duration of 30 s to 24 h",
        "2: `schedule.timezone`: expected a name of the tz database",
        "2: unknown key `schedule.dais`; did you mean `days`?",
        "4: `schedules.noon.start`: this key is needed here",
        "5: `schedules.Early`: String should match pattern",
        "6: unknown key `source`; did you mean `socket`?",
        "7: `retry_after_s`: Input should be less than or equal to 60 (got 300)",
    ]
    assert any(line.startswith(f"{file}:2: `schedule.start`: ") for line in told)
    rest = [line for line in told if ":2: `schedule.start`" not in line]
    assert [line[len(str(file)) + 1 :][: len(begin)] for line, begin in zip(rest, begins, strict=True)] == begins


def test_a_file_of_nothing_but_mistakes_is_told_in_a_few(tmp_path):
    with pytest.raises(UsageError) as caught:
        load_config(write(tmp_path, "".join(f"key{number}: 1\n" for number in range(500))), {})
    lines = str(caught.value).split("\n")
    assert (len(lines), lines[0].endswith(": 500 mistakes"), lines[-1]) == (22, True, "and 480 more")


def test_one_window_is_called_nightly(tmp_path):
    window = "{start: '02:00', duration: 1h, timezone: UTC}"
    with pytest.raises(UsageError, match=r":2: `schedules`: `schedule` and `schedules.nightly` are both"):
        load_config(write(tmp_path, f"schedule: {window}\nschedules: {{nightly: {window}}}\n"), {})


@pytest.mark.parametrize(
    ("text", "sleeps", "deadline_s", "wanted"),
    [
        ("slots: 32", True, 60.0, False),
        ("sleep: off", False, 60.0, False),
        ("sleep: {deadline_s: 5, leftover_mib: 0}", True, 5.0, True),
    ],
)
def test_sleep_is_on_unless_it_is_off(tmp_path, text, sleeps, deadline_s, wanted):
    config = load_config(write(tmp_path, text), {})
    assert (config.policy.sleep, config.policy.sleep_deadline_s) == (sleeps, deadline_s)
    assert config.wants_sleep is wanted


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        load_config(tmp_path / "nowhere.yaml", {})


def test_a_configuration_is_not_called_a_topology():
    with pytest.raises(UsageError, match=r"c\.yaml: a configuration is a mapping of keys to their values"):
        parse_config("- a\n", "c.yaml", {})
