"""YAML that people write: read strictly, and every mistake one sentence with file and line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from gates.errors import GateUsageError

MAX_BYTES: Final = 256 * 1024


def read_text(path: Path, what: str) -> str:
    """The text of the file at `path`; `what` it is, in sentences. Raises `GateUsageError`."""
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise GateUsageError(f"{path}: {what} of {size} bytes; at most {MAX_BYTES} are read.")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise GateUsageError(f"{path}: cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError:
        raise GateUsageError(f"{path}: is not UTF-8 text.") from None


def mapping_in(text: str, where: str, expected: str) -> Mapping[str, Any]:
    """The mapping that `text` is; `where` names it in sentences, `expected` says what it should be.

    Raises `GateUsageError`, also for an alias and for a key that is given twice.
    """
    try:
        document = yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader that refuses even more
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise GateUsageError(f"{where}{line}: {error.problem or 'not valid YAML'}.") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise GateUsageError(f"{where}: not valid YAML ({str(error).splitlines()[0]}).") from None
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise GateUsageError(f"{where}: {expected}.")
    return document


class _Loader(yaml.SafeLoader):
    """Refuses aliases (a small file must stay small) and keys given twice (the first would be lost unseen)."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="aliases are not allowed", problem_mark=self.get_mark())
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a key is no plain text", problem_mark=key.start_mark)
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key.value!r} is given twice", problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)
