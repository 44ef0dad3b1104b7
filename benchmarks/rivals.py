"""aiperf and guidellm in a venv of their own: the install, and the commands that put the same load on a server.

Not a program: `load_client.py` beside this file measures with it. The install takes several gigabytes (torch).
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("aiperf==0.13.0", "guidellm==0.8.1")
# A tokenizer that nothing has to be downloaded for: one token per byte. Both tools want one to write their prompts.
_TOKENIZER = """
import json, sys
from pathlib import Path
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
folder = Path(sys.argv[1])
folder.mkdir(parents=True)
signs = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "<|end|>"]
made = Tokenizer(models.BPE({sign: number for number, sign in enumerate(signs)}, []))
made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
made.save(str(folder / "tokenizer.json"))
end = dict.fromkeys(("eos_token", "bos_token", "pad_token"), "<|end|>")
config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 32768, **end}
(folder / "tokenizer_config.json").write_text(json.dumps(config))
"""


@dataclass(frozen=True)
class Shape:
    """A closed loop: `streams` at once until `streams` × `requests` answers of `tokens` tokens have come."""

    streams: int
    requests: int
    tokens: int

    @property
    def chunks(self) -> int:
        return self.streams * self.requests * self.tokens


Command = Callable[[int, Shape, Path], list[str]]
"""Port of the server, load, folder for what it writes → argv."""


def install(cache: Path) -> Path:
    """The folder with the venv and the tokenizer; made where it is not there yet, or was made for other versions."""
    name = hashlib.sha256(json.dumps([PACKAGES, _TOKENIZER, sys.version_info[:2]]).encode()).hexdigest()[:8]
    home = cache / f"load-rivals-{name}"
    if not (home / "complete").exists():
        print(f"installing {' and '.join(PACKAGES)} into {home} (several gigabytes, minutes) …", flush=True)
        python = home / "venv" / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", "--clear", home / "venv"], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        if not (home / "tokenizer").exists():
            subprocess.run([python, "-c", _TOKENIZER, home / "tokenizer"], check=True)
        (home / "complete").touch()
    return home


def commands(home: Path) -> dict[str, Command]:
    """The tools that are measured, by name."""
    programs, tokenizer = home / "venv" / "bin", home / "tokenizer"

    def aiperf(port: int, shape: Shape, folder: Path) -> list[str]:
        load = {"concurrency": shape.streams, "request-count": shape.streams * shape.requests}
        text = {"tokenizer": tokenizer, "prompt-input-tokens-mean": 64, "prompt-output-tokens-mean": shape.tokens}
        rest = {"endpoint-type": "chat", "extra-inputs": "ignore_eos:true", "ui": "none", "output-artifact-dir": folder}
        switches = ["streaming", "use-legacy-max-tokens", "use-server-token-count", "no-gpu-telemetry"]
        flags = [f"--{name}" for name in [*switches, "no-server-metrics"]]
        pairs = [part for name, value in {**load, **text, **rest}.items() for part in (f"--{name}", str(value))]
        return [str(programs / "aiperf"), "profile", "-m", "emu", "-u", f"http://127.0.0.1:{port}", *flags, *pairs]

    def guidellm(port: int, shape: Shape, folder: Path) -> list[str]:
        flags = {
            "backend": f"kind=openai_http,target=http://127.0.0.1:{port},model=emu",
            "profile": f"kind=concurrent,streams={shape.streams}",
            "constraint": f"kind=max_requests,count={shape.streams * shape.requests}",
            "tokenizer": f"kind=huggingface_auto,model={tokenizer}",
            "data": f"kind=synthetic_text,prompt_tokens=64,output_tokens={shape.tokens}",
            "output": f"kind=json,path={folder / 'guidellm.json'}",
        }
        pairs = [part for name, value in flags.items() for part in (f"--{name}", value)]
        return [str(programs / "guidellm"), "run", *pairs, "--disable-console"]

    return {"aiperf": aiperf, "guidellm": guidellm}


def default_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cutover"
