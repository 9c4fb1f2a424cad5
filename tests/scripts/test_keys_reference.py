"""docs/keys.md is up to date."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_reference_of_keys_is_up_to_date_and_has_each_key_once():
    spec = importlib.util.spec_from_file_location("keys_reference", ROOT / "scripts" / "keys_reference.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page = script.PAGE.read_text(encoding="utf-8")
    assert page == script.reference(), "run: python scripts/keys_reference.py"
    for key in ("train.update_tokens", "decode.beam_size", "checkpoint", "data.test"):
        assert page.count(f"| `{key}` |") == 1
