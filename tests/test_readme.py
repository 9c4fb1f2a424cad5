"""The README's reference of keys is the dataclasses' own."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_reference_of_keys_is_up_to_date():
    spec = importlib.util.spec_from_file_location("keys_reference", ROOT / "scripts" / "keys_reference.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert script.updated(readme) == readme, "run: python scripts/keys_reference.py"
    assert "`train.update_tokens`" in script.reference()
