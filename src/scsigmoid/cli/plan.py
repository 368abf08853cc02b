"""``scsigmoid plan``: what a preset costs."""

import argparse
from pathlib import Path

from scsigmoid.cli.arguments import Stages
from scsigmoid.config.check import read_yaml
from scsigmoid.errors import UserError


def add(stages: Stages) -> None:
    """Add the stage's subcommands."""
    stages.add(
        "plan", plan, "print what a preset costs in files, disk and hours, before anything runs"
    ).overrides().number("devices", "GPUs that train at a time").number(
        "cores", "cores that read and tokenize"
    ).number("gigabits", "assumed speed of the network, Gbit/s")


def plan(options: argparse.Namespace) -> None:
    from scsigmoid.config.check import load, merge, parsed
    from scsigmoid.forecast.page import forecast

    for name in ("devices", "cores", "gigabits"):
        if getattr(options, name) < 1:
            raise UserError(f"--{name}: expected at least 1")
    if not Path("config.yaml").is_file():
        raise UserError("config.yaml: not in this folder; run plan in the project's own")
    given = read_yaml(options.configfile) if options.configfile else {}
    config = load(overrides=merge(given, parsed(options.config)))
    results = Path(config.results or f"results/{config.preset}")
    for line in forecast(
        config,
        devices=options.devices,
        cores=options.cores,
        gigabits=options.gigabits,
        results=results,
    ):
        print(line)
