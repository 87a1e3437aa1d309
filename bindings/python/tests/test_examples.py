"""The examples run, and so does what docs/python.md shows."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_messages import PATIENCE, unique
from test_runs import stored  # noqa: F401, a fixture

PACKAGE = Path(__file__).parents[1]
EXAMPLES = PACKAGE / "examples"
PAGE = PACKAGE.parents[1] / "docs" / "python.md"


def start(name, *arguments):
    command = [sys.executable, EXAMPLES / name, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_ping_and_pong_talk():
    name = unique("examples")
    with start("pong.py", name, 50) as pong, start("ping.py", name, 50) as ping:
        said = ping.communicate(timeout=PATIENCE)[0]
        assert said.count(" bytes after ") == 50, said
        assert pong.wait(PATIENCE) == 0


@pytest.mark.parametrize(("asks", "answers"), [("python", "c"), ("c", "python")])
def test_python_and_c_talk(asks, answers):
    """With the programs in C that PUNCTUAL_C_EXAMPLES has, where somebody built them."""
    folder = os.environ.get("PUNCTUAL_C_EXAMPLES")
    if folder is None:
        pytest.skip("no examples in C: PUNCTUAL_C_EXAMPLES names no folder (cargo xtask ci --only c,python)")
    name = unique("languages")

    def end(role, language):
        if language == "python":
            return start(f"{role}.py", name, 50)
        return subprocess.Popen([Path(folder) / role, name, "50"], stdout=subprocess.PIPE, text=True)

    with end("pong", answers) as pong, end("ping", asks) as ping:
        assert ping.communicate(timeout=PATIENCE)[0].count(" bytes after ") == 50
        assert pong.wait(PATIENCE) == 0


def test_runs_are_read_drawn_and_compared(stored, tmp_path):  # noqa: F811
    other = tmp_path / "other"
    shutil.copytree(stored / "samples", other / "samples")
    shutil.copy(stored / "run.json", other)
    with start("runs.py", stored, other) as reads:
        said = reads.communicate(timeout=PATIENCE)[0]
        assert reads.returncode == 0
    assert "202 messages" in said and "never: 4" in said and "p50 0.05 us" in said and "p50 1.00x" in said, said


def blocks():
    found = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return [block for block in found if "import punctual" in block]


@pytest.mark.parametrize("block", blocks(), ids=range(len(blocks())))
def test_the_page_is_right(block, request, tmp_path, capsys, monkeypatch):
    """Only what reads a run needs a run, and the libraries of frames that make one."""
    monkeypatch.chdir(tmp_path.parent)
    text = block
    if '"RUN"' in block:
        text = block.replace('"RUN"', repr(str(request.getfixturevalue("stored"))))
    exec(compile(text, PAGE.name, "exec"), {"__name__": "page"})
    shown = re.findall(r"print\(.*\)  # (.*)", block)
    assert capsys.readouterr().out.splitlines()[: len(shown)] == shown
