"""A real SGLang serves the same real model: it passes the same gates, and fails them without what it needs."""

import pytest

PARSERS = ("--tool-call-parser", "qwen25", "--reasoning-parser", "qwen3")

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(3600)]


def failed(report: dict, gate: str = "") -> list[str]:
    """What the gates (or one of them) found wrong, in their own sentences."""
    return [
        f"{step['gate']} {check['id']}: {check['sentence']}"
        for step in report["steps"]
        if step["verdict"] and gate in ("", step["gate"])
        for check in step["verdict"]["checks"]
        if check["verdict"] != "pass" and not check["skipped"]
    ]


def test_a_real_sglang_passes_what_its_model_can(serve_sglang, tmp_path):
    server = serve_sglang("sglang", *PARSERS)
    print(f"generates after {server.started_in_s:.0f} s")
    titles = [process.name() for process in server.family()]
    assert any("scheduler" in title for title in titles), titles
    code, report = server.gates(evidence=tmp_path / "evidence")
    assert (code, report["verdict"]) == (0, "pass"), failed(report)


@pytest.mark.parametrize(
    ("name", "parsers", "why"),
    [
        ("noparser", PARSERS[2:], "is a tool-call parser set?"),
        ("wrongparser", ("--tool-call-parser", "pythonic", *PARSERS[2:]), "is a tool-call parser set?"),
        ("noreasoning", PARSERS[:2], "think"),
    ],
)
def test_a_wrong_parser_is_blocked_and_named(serve_sglang, tmp_path, name, parsers, why):
    server = serve_sglang(name, *parsers)
    code, report = server.gates(evidence=tmp_path / "evidence")
    print(*failed(report), sep="\n")
    assert (code, report["verdict"]) == (10, "fail"), failed(report)
    assert not failed(report, "health")
    assert any(why in sentence for sentence in failed(report, "acceptance")), failed(report)


def test_a_template_that_drops_results_is_blocked_and_named(serve_sglang, tmp_path, model_without_results):
    server = serve_sglang("deaf", *PARSERS, model=model_without_results)
    code, report = server.gates(evidence=tmp_path / "evidence")
    print(*failed(report), sep="\n")
    assert (code, report["verdict"]) == (10, "fail"), failed(report)
    assert any("F08b" in sentence for sentence in failed(report, "acceptance")), failed(report)
