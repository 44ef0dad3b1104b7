"""An inventory for `nvml_kit.Watched`: a line of JSON in, the sheet as a line of JSON out, until stdin ends.

Its log goes to stderr, a document per line.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import structlog

from controller.effects.gpus import NvmlInventory

structlog.configure(
    processors=[structlog.processors.add_log_level, structlog.processors.JSONRenderer()],
    logger_factory=structlog.PrintLoggerFactory(sys.stderr),
)
inventory = NvmlInventory(**json.loads(sys.argv[1]))
for line in sys.stdin:
    asked = json.loads(line)
    if asked["nudge"]:
        inventory.nudge()
    gpus = inventory.read(asked["ours"], asked["held"])
    sheet = inventory.sheet()
    told = {
        **asdict(sheet),
        "gpus": [asdict(gpu) for gpu in gpus],
        "facts": inventory.facts(),
        "hardware": inventory.hardware([card.id for card in sheet.cards]),
    }
    print(json.dumps(told), flush=True)
inventory.close()
