"""What a model is, told from its files: small ones by hash, weights by name, size and a sample of their bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from launch.errors import ProvenanceError

WEIGHTS = frozenset({".safetensors", ".bin", ".pt", ".pth", ".gguf", ".npz", ".onnx"})
_HASHED_WHOLE_MAX_BYTES = 64 * 1024 * 1024
_SAMPLE_BYTES = 1024 * 1024
_FILES_MAX = 5000


def describe(path: Path) -> dict[str, Any]:
    """The files of a model folder, or one file, as JSON.

    A fine-tune has the same file names, sizes and headers as its base; so weights carry ``sample_sha256`` over their
    first, middle and last MiB. Reading tens of gigabytes whole would take minutes.
    """
    if path.is_file():
        return {"path": str(path), "kind": "file", "files": [_file(path, path.name)]}
    files = [_file(file, file.relative_to(path).as_posix()) for file in _files(path)]
    return {"path": str(path), "kind": "folder", "files": files}


def check(path: Path, *, gguf_file: bool) -> None:
    """Refuse a model that is not there or not whole; ProvenanceError says what is missing."""
    if not path.exists():
        raise ProvenanceError(f"model: {path} does not exist; give the folder of the model, or the GGUF file")
    if gguf_file:
        if path.is_dir():
            raise ProvenanceError(f"model: {path} is a folder, and llama-server loads a file; name the .gguf file")
        return
    if path.is_file():
        return
    names = {file.name for file in path.iterdir()}
    if not names & {"config.json", "params.json"} and not any(name.endswith(".gguf") for name in names):
        raise ProvenanceError(f"model: {path} has no config.json; give the folder that holds it")
    missing = _missing_shards(path)
    if missing:
        raise ProvenanceError(
            f"model: {path} is not whole: {len(missing)} of the files in its index are missing, first {missing[0]}; "
            "finish the download",
        )


def _missing_shards(path: Path) -> list[str]:
    """Weight files that an index names and that are not there."""
    missing: set[str] = set()
    for index in path.glob("*.index.json"):
        try:
            named = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # not an index that we know; the engine will say what it makes of it
        missing |= {name for name in named if isinstance(name, str) and not (path / name).exists()}
    return sorted(missing)


def _files(folder: Path) -> Iterator[Path]:
    found = (
        file
        for file in sorted(folder.rglob("*"))
        if not any(part.startswith(".") for part in file.relative_to(folder).parts) and file.is_file()
    )
    for count, file in enumerate(found):
        if count >= _FILES_MAX:
            raise ProvenanceError(f"model: {folder} holds more than {_FILES_MAX} files; that is not a model's folder")
        yield file


def _file(file: Path, name: str) -> dict[str, Any]:
    size_bytes = file.stat().st_size
    facts: dict[str, Any] = {"name": name, "size_bytes": size_bytes}
    with file.open("rb") as opened:
        if size_bytes <= _HASHED_WHOLE_MAX_BYTES and file.suffix not in WEIGHTS:
            facts["sha256"] = hashlib.file_digest(opened, "sha256").hexdigest()
        else:
            digest = hashlib.sha256()
            for offset in (0, max(0, size_bytes // 2), max(0, size_bytes - _SAMPLE_BYTES)):
                opened.seek(offset)
                digest.update(opened.read(_SAMPLE_BYTES))
            facts["sample_sha256"] = digest.hexdigest()
    return facts
