"""The TypeScript editor from a page of the documentation, unchanged."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from tests.interop.launching import MODULES, ROOT, TOOLCRIB, node

pytestmark = pytest.mark.interop

PAGE = ROOT / "docs" / "acp-discovery.md"
BEFORE = "def saw():\n    return 'blunt'\n"


@pytest.mark.parametrize(("said", "after"), [("y", "blade"), ("n", "saw")])
def test_the_typescript_editor_of_the_page_renames_only_if_its_person_agrees(
    said: str, after: str, tmp_path: Path
) -> None:
    if not (tsx := MODULES / "tsx" / "dist" / "cli.mjs").exists():
        pytest.skip("tsx is not installed: npm ci --prefix tests/interop")
    (editor,) = re.findall(r"```ts\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (script,) = re.findall(r"```json\n(\[.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "node_modules").symlink_to(MODULES)
    (tmp_path / "editor.mts").write_text(editor)
    (tmp_path / "rename.json").write_text(json.dumps(json.loads(script)))
    (project := tmp_path / "project").mkdir()
    (project / "bench.py").write_text(BEFORE)
    agent = [TOOLCRIB, "acp", "--model", "scripted:../rename.json", "--no-sessions"]
    done = subprocess.run(
        [node(), str(tsx), "../editor.mts", *agent],
        cwd=project,
        input=f"{said}\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "It is called blade now."), done.stderr
    assert 'rename_symbol(old_name: "saw", new_name: "blade")? [y/N]' in done.stderr
    assert (project / "bench.py").read_text() == BEFORE.replace("saw", after)
