"""Metadata about what a changed setting runs again, against the workflow's rules."""

import re
from pathlib import Path

from scsigmoid.config.effects import effects
from scsigmoid.config.schema import Settings

RULES = Path(__file__).parents[2] / "workflow" / "rules"


def test_rules_take_the_settings_that_name_them() -> None:
    text = "".join(path.read_text() for path in sorted(RULES.glob("*.smk")))
    blocks = re.split(r"^(?:use )?rule (?:\w+ as )?(\w+)", text, flags=re.MULTILINE)[1:]
    taken = {
        rule: re.findall(r"settings_of\(\"(\w+)\"\)", block)
        for rule, block in zip(blocks[::2], blocks[1::2], strict=True)
    }
    named = {
        rule
        for section in Settings.__subclasses__()
        for effect in effects(section).values()
        for rule in (effect.rules if effect else ())
    }
    # These take settings that depend on the model, and the whole study.
    assert named - {rule for rule, own in taken.items() if own} == {"train", "study_runs"}
    assert all(own in ([], [rule]) for rule, own in taken.items())
