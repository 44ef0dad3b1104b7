"""`release check`, and preflight at the desk: what is refused, what is noted, what somebody overrules."""

from __future__ import annotations

import httpx
import pytest

FAR = (
    "name: far\nserves: [m]\nengine: sglang\nmodel: /no/model\n"
    "flags: [{flags}]\ninstances: {{a: {{gpus: 4}}, b: {{gpus: 4}}}}\ncapability: {{tools: false}}\n"
)
PIPED = "--tp-size, 2, --pp-size, 2, --disable-custom-all-reduce, --speculative-algorithm, EAGLE"


@pytest.fixture
def far(tmp_path):
    """A topology of another box: far("--tp-size, 4")."""

    def make(flags):
        path = tmp_path / "far.yaml"
        path.write_text(FAR.format(flags=flags))
        return path

    return make


def test_check_says_what_is_refused_why_and_where_that_is_written(cutover, far):
    done = cutover("release", "check", far(PIPED))
    assert done.code == 5
    assert "refuse  sglang-eagle-pipeline\n" in done.out
    assert "set SGLANG_ENABLE_PP_SPEC" in done.out
    assert "validation_hook.py" in done.out
    assert "not judged: sglang-attention-heads, sglang-kv-heads: /no/model/config.json cannot be read" in done.out
    assert done.out.endswith(": 1 refusal\n")


def test_check_of_what_is_only_warned_of_is_no_failure(cutover, far):
    done = cutover("release", "check", far("--tp-size, 2, --pp-size, 2"))
    assert done.code == 0
    assert "warn  sglang-all-reduce-pipeline\n" in done.out
    assert done.out.endswith(": 1 warning\n")
    asleep = cutover("release", "check", far("--tp-size, 4"), "--sleep")
    assert (asleep.code, "sglang-memory-saver" in asleep.out) == (0, True)


def test_check_of_nothing_wrong(cutover, far):
    done = cutover("release", "check", far("--tp-size, 4, --kv-cache-dtype, fp8_e5m2"), "--compute-capability", "8.6")
    assert done.code == 0
    assert done.out.endswith(": nothing that is known speaks against it\n")


def test_check_as_json(cutover, far):
    done = cutover("release", "check", far(PIPED), "--json")
    assert (done.code, done.json["refused"]) == (5, True)
    (finding,) = done.json["findings"]
    assert (finding["rule"], finding["level"], finding["instances"]) == ("sglang-eagle-pipeline", "refuse", ["a", "b"])
    assert finding["source"]
    assert {entry["rule"] for entry in done.json["untold"]} >= {"sglang-kv-heads"}


def test_a_compute_capability_is_two_numbers(cutover, far):
    done = cutover("release", "check", far("--tp-size, 4"), "--compute-capability", "volta")
    assert done.code == 2
    assert "'volta' is not like 8.6" in done.err


@pytest.mark.parametrize("command", ["plan", "propose"])
def test_a_rule_that_is_none_is_told_with_the_nearest(cutover, far, command):
    done = cutover(command, far(PIPED), "--overrule", "sglang-eagle-pipe=why")
    assert done.code == 2
    assert "did you mean sglang-eagle-pipeline?" in done.err


def test_overruling_takes_a_reason(cutover, far):
    done = cutover("propose", far(PIPED), "--overrule", "sglang-eagle-pipeline")
    assert done.code == 2
    assert "takes a reason" in done.err


# --- at the desk ---


@pytest.fixture
def on_box(box, cutover):
    return lambda *words: cutover("--config", box.config, *words)


@pytest.fixture
def llama(tmp_path):
    """A topology that this box can freeze: a program called llama-server, and a file for a model."""
    server, model = tmp_path / "llama-server", tmp_path / "m.gguf"
    server.write_text("#!/bin/sh\nexit 1\n")
    server.chmod(0o755)
    model.write_bytes(b"GGUF")

    def make(*flags, name="llama"):
        path = tmp_path / f"{name}.yaml"
        path.write_text(
            f"name: {name}\nserves: [emu]\nengine: llamacpp\ncommand: [{server}]\nmodel: {model}\n"
            f"flags: [{', '.join(flags)}]\ninstances: {{a: {{gpus: 1}}}}\ngates: smoke\n"
        )
        return path

    return make


def test_a_plan_and_a_proposal_are_refused_alike(box, on_box, llama):
    for command in ("plan", "propose"):
        done = on_box(command, llama("--ctx-size=4096"))
        assert done.code == 5
        assert "preflight refuses llama@" in done.err
        assert "--ctx-size=4096: llama-server refuses to start" in done.err
        assert "--overrule llamacpp-joined-flag=REASON" in done.err


def test_a_warning_is_noted_with_the_plan(box, on_box, llama):
    plan = on_box("plan", llama("-ctk", "q8_0"), "--json").json["plan"]
    assert any("-ctk q8_0 with -ctv f16" in note and "(rule llamacpp-mixed-cache)" in note for note in plan["notes"])
    assert "note: preflight: -ctk q8_0 with -ctv f16" in on_box("plan", llama("-ctk", "q8_0")).out


def test_what_somebody_overrules_stays_in_the_record(box, on_box, llama):
    file, reason = llama("--ctx-size=4096", "-ctk", "q8_0"), "a patched build, tried by hand"
    assert on_box("freeze", "a proposal to look at").code == 0
    try:
        noted = on_box("plan", file, "--overrule", f"llamacpp-joined-flag={reason}")
        assert noted.code == 0
        assert f"overruled: {reason}" in noted.out
        filed = on_box("propose", file, "--overrule", f"llamacpp-joined-flag={reason}")
        assert filed.code == 0
        assert "preflight: -ctk q8_0 with -ctv f16" in filed.err
        rollout = filed.out.split()[0]
        shown = on_box("show", rollout)
        assert f"preflight rule llamacpp-joined-flag overruled: {reason}\n" in shown.out
        document = on_box("show", rollout, "--json").json
        assert document["options"]["overruled"] == {"llamacpp-joined-flag": reason}
        assert on_box("abort", rollout).code == 0
    finally:
        on_box("unfreeze")


def test_the_api_knows_its_rules_too(box, llama):
    body = {"topology": llama("-np", "2").read_text(), "source": str(llama("-np", "2"))}
    transport = httpx.HTTPTransport(uds=str(box.stage.config.socket))
    with httpx.Client(transport=transport, base_url="http://daemon", timeout=30) as client:
        for overruled in ({"no-such-rule": "why"}, {"llamacpp-joined-flag": " "}):
            answer = client.post("/v1/plan", json={**body, "overruled": overruled})
            assert (answer.status_code, answer.json()["exit_code"]) == (422, 2)
