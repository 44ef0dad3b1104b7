"""What an operator does on the box in the container: installs by the docs, proposes, kills, looks who survived."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from container import WHEELS, Container
from debian_tree import ROOT

DOCS = ROOT / "docs" / "operations.md"
WHEEL_NAME = re.compile(r"cutover-[\d.]+-py3-none-any\.whl")
SETTLED_S = 60.0
CLIENTS = "/root/clients.log"
PUBLIC = "127.0.0.1:80"  # which only root could listen on, but for the unit's one capability
CONFIG = f"""\
public: {PUBLIC}
gpus: {{kind: none, count: 4}}
bake: {{seconds: 1, interval_s: 0.5}}
drain_s: 30
start_s: 90
"""
# A container has its kernel's boot id, and that one is not rebooted: the service is shown the id of the container.
OWN_BOOT_ID = {
    "/etc/systemd/system/boot-id.service": """\
[Unit]
Before=cutover.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c "cat /proc/sys/kernel/random/boot_id > /run/boot-id"
[Install]
WantedBy=multi-user.target
""",
    **{
        f"/etc/systemd/system/{unit}.service.d/boot-id.conf": """\
[Service]
BindReadOnlyPaths=/run/boot-id:/proc/sys/kernel/random/boot_id
"""
        for unit in ("cutover", "cutover-attempt@", "cutover-frontdoor")
    },
}
PROFILE = """\
gates:
  - {name: health, deadline_s: 60, settings: {probes: 1}}
"""
TOPOLOGY = """\
name: box
serves: [emu]
engine: emulator
flags: ["--start-s", "0.2", "--ttft-ms", "40", "--itl-ms", "15"]
instances: {a: {gpus: 2}}
stop_grace_s: 5
gates: /etc/cutover/quick.yaml
"""
ROUTED = TOPOLOGY.replace("name: box", "name: routed").replace(
    "{a: {gpus: 2}}", "{a: {gpus: 1}, b: {gpus: 1}}\nrouter: {kind: smg}"
)
# pid and start time of every shim that lives and of its program: what adoption leaves as it was. A program without its
# shim is known by where it lives.
WHO_RUNS = """
import glob, json, os
def ticks(pid, home):
    try:
        if os.readlink(f"/proc/{pid}/cwd") == home:
            return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[19])
    except OSError:
        pass
found = {}
for home in glob.glob("/var/lib/cutover/runs/*") + ["/var/lib/cutover/frontdoor/run"]:
    if os.path.exists(f"{home}/shim.json"):
        shim = json.load(open(f"{home}/shim.json"))
        seen = [(pid, ticks(pid, home)) for pid in (shim["pid"], shim["child_pid"])]
        if any(began for _, began in seen):
            found[shim["attempt_id"]] = [fact for pair in seen for fact in pair]
print(json.dumps(found))
"""


class Box:
    """`versions` of the product lie among the wheels."""

    def __init__(self, container: Container, versions: tuple[str, str]) -> None:
        self.container = container
        self.run = container.run
        self.versions = versions

    def write(self, path: str, text: str) -> None:
        place = self.container.inside(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        place.chmod(0o644)

    def by_the_docs(self, headline: str, version: str) -> None:
        """Run the commands under a headline of docs/operations.md as they stand, with the wheel that is there."""
        offline = f"export PIP_NO_INDEX=1 PIP_FIND_LINKS={WHEELS}; cd {WHEELS}\n"
        commands = WHEEL_NAME.sub(f"cutover-{version}-py3-none-any.whl", commands_under(headline))
        self.run(f"set -e\n{offline}{commands}", timeout_s=240)

    def tell_boots_apart(self) -> None:
        for path, text in OWN_BOOT_ID.items():
            self.write(path, text)
        self.run("systemctl daemon-reload && systemctl enable -q --now boot-id")

    # --- the daemon ---------------------------------------------------------------------------------------------------

    def cutover(self, words: str, *, timeout_s: float = 60.0) -> str:
        return self.run(f"/opt/cutover/bin/cutover {words}", timeout_s=timeout_s)

    def status(self) -> dict[str, Any]:
        """Empty while no daemon answers."""
        code, said = self.container.ask("/opt/cutover/bin/cutover status --json")
        return dict(json.loads(said)) if code == 0 else {}

    def daemon_pid(self) -> int:
        return int(self.run("systemctl show -P MainPID cutover"))

    def unit(self, name: str) -> str:
        """A property of the unit as systemd has it."""
        return self.run(f"systemctl show -P {name} cutover").strip()

    def unit_of(self, pid: int) -> str:
        """Slice and unit in which a process is: `system.slice/cutover.service`."""
        groups = self.run(f"cat /proc/{pid}/cgroup")
        found = re.search(r"^0::(?:/\.\.)*.*?((?:system|cutover)\.slice/.*)$", groups, re.MULTILINE)
        return found[1] if found else groups

    def propose(self, topology: str, options: str = "") -> None:
        self.write("/root/topology.yaml", topology)
        self.cutover(f"propose /root/topology.yaml {options}", timeout_s=120)

    def propose_up_to_approval(self, topology: str) -> str:
        """The rollout, whose gates have passed and that waits for a person."""
        self.propose(topology, "--require-approval")
        seen: dict[str, Any] = {}

        def waits() -> bool:
            seen.update(self.status()["rollout"] or {})
            return bool(seen and seen["phase"] == "awaiting_approval")

        self.container.until(waits, SETTLED_S, "the gates to pass")
        return str(seen["id"])

    def settle_daemon(self) -> None:
        """Wait until a daemon answers, whatever it serves."""
        self.container.until(self.status, SETTLED_S, "the daemon to answer")

    def settle(self) -> dict[str, Any]:
        """Wait until the daemon says that all of live generates and users reach it; its status."""
        seen: dict[str, Any] = {}

        def well() -> bool:
            seen.update(self.status() or {"live": None})
            live = seen["live"]
            if not live or not live["attempts"] or not seen["front_door"]["alive"]:
                return False
            return all(a["state"] == "ready" and (a["probe"] or {}).get("ok") for a in live["attempts"])

        self.container.until(well, SETTLED_S, "live to serve")
        return seen

    # --- what users and processes see ---------------------------------------------------------------------------------

    def who_runs(self) -> dict[str, list[int | None]]:
        """By attempt (and `frontdoor`): pid and start time of its shim, pid and start time of its program."""
        return dict(json.loads(self.run(f"python3 - <<'EOF'{WHO_RUNS}EOF")))

    def answer(self) -> str:
        """One question through the public address: what is said, or why nothing is."""
        body = json.dumps({"model": "emu", "max_tokens": 5, "messages": [{"role": "user", "content": "Hello?"}]})
        ask = f"""
import json, urllib.request
request = urllib.request.Request("http://{PUBLIC}/v1/chat/completions", {body!r}.encode(),
                                 {{"Content-Type": "application/json"}})
try:
    print(len(json.load(urllib.request.urlopen(request, timeout=10))["choices"]), "answer")
except OSError as error:
    print(error)
"""
        return self.run(f"python3 - <<'EOF'{ask}EOF").strip()

    @contextmanager
    def streams(self, at_once: int = 6) -> Iterator[None]:
        """Users who stream all the time; at the end none of them may have been refused or cut."""
        say = f"-p StandardOutput=file:{CLIENTS}"
        load = f"-m controller.demo.load http://{PUBLIC} emu {at_once} 80"
        self.run(f"rm -f {CLIENTS}; systemd-run -q --unit=clients {say} /opt/cutover/bin/python {load}")
        self.container.until(lambda: self.tally()["complete"] >= at_once, SETTLED_S, "the first answers")
        try:
            yield
            before = self.tally()["complete"]
            self.container.until(lambda: self.tally()["complete"] >= before + 2 * at_once, SETTLED_S, "more answers")
        finally:
            self.container.ask("systemctl kill --signal=TERM clients")
            ended = "test $(systemctl is-active clients) != active"
            self.container.until(lambda: self.container.ask(ended)[0] == 0, SETTLED_S, "the last answers")
        sums = self.tally()
        assert (sums["failed"], sums["truncated"], sums["first_problem"]) == (0, 0, ""), sums

    def tally(self) -> dict[str, Any]:
        log = self.container.inside(CLIENTS)
        for line in reversed(log.read_text().splitlines() if log.exists() else []):
            found: dict[str, Any] = json.loads(line)
            if "sent" in found:
                return found
        return {"complete": 0}


def commands_under(headline: str) -> str:
    """The indented lines of a section of docs/operations.md."""
    section = DOCS.read_text().split(f"\n### {headline}\n", 1)[1].split("\n#", 1)[0]
    return textwrap.dedent("".join(line for line in section.splitlines(keepends=True) if line.startswith("    ")))
