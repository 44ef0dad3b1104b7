"""The report as one HTML page that needs nothing else: no script, no font, no picture, no network.

Whatever people, engines and gates wrote is hostile: the template escapes every value, and the page forbids itself to
run or to load anything. Its links lead from `reports/` to the evidence beside it in the state directory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from jinja2 import Environment, StrictUndefined

from . import words
from .charts import dots, timeline
from .records import Report
from .words import is_shown_as_arm

_TEMPLATE: Final = Path(__file__).with_name("page.html")
_FILTERS: Final = (
    "plain",
    "span",
    "clock",
    "moment",
    "number",
    "first_token",
    "cell",
    "change",
    "parts_in_words",
    "window_words",
)


def to_html(report: Report) -> str:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {name: getattr(words, name) for name in _FILTERS}
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    alone = [part for part in report.rollouts if not is_shown_as_arm(part, report)]
    return template.render(
        report=report,
        night=report.night,
        now=report.present,
        timeline=timeline(report),
        charts=dots([(words.label(part, report), part.compared) for part in alone]),
        baseline=words.baseline_in_words(report),
        figures=[(part.id, one) for part in alone for one in part.figures],
        sweeps=[(sweep, dots([(arm.name, arm.compared) for arm in sweep.arms])) for sweep in report.sweeps],
        users=words.users_in_words(report.users)
        if report.users
        else ("what users met is not known: there was no log",),
        users_of=words.users_in_words,
    )
