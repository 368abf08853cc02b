"""Time training's data loader alone, on simulated cells of the paper's lengths.

    python workflow/scripts/time_loading.py --model sigmoid_2k --workers 2 --output loading.csv

The cells lie in a token store on disk.  Each is read for the first time, so its checksum is
verified, as in training.  Each row is a round of global batches: cells per second of the clock and
of CPU time.
"""

import argparse
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import torch

from scsigmoid.benchmarks.simulated import write_simulated_tokens
from scsigmoid.config.check import load, model_training
from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.tokens.store import TokenStore
from scsigmoid.training.batches import GlobalBatches, ahead

ROOT = Path(__file__).parents[2]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--model", default="sigmoid_2k")
    parser.add_argument("--workers", type=int, default=2, help="threads that prepare batches")
    parser.add_argument("--cells", type=int, default=32_768, help="cells of the store")
    parser.add_argument("--steps", type=int, default=20, help="global batches of a round")
    parser.add_argument("--rounds", type=int, default=5, help="rounds after the warm-up")
    parser.add_argument("--output", type=Path, required=True, help="CSV file")
    options = parser.parse_args(arguments)
    config = load(ROOT / "config.yaml", ROOT / "workflow/presets", {"preset": options.preset})
    lengths, context = config.benchmarks.training, config.models[options.model].context
    size = config.sizes[config.architecture.size]
    encoder = EncoderSettings.of(size, config.architecture, "sigmoid", context, lengths.vocabulary)
    training = replace(model_training(config, options.model), workers=options.workers)
    rows = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_simulated_tokens(folder, lengths, options.cells, context - 1, config.seed)
        store = TokenStore.open(folder / "tokens")
        batches = GlobalBatches(store, encoder, training, config.seed)
        steps = range(1, (options.rounds + 1) * options.steps + 1)
        with closing(ahead(batches, steps, options.workers, torch.device("cpu"))) as shares:
            for _ in range(options.rounds + 1):
                clock, cpu = time.perf_counter(), time.process_time()
                cells = sum(len(next(shares).lengths) for _ in range(options.steps))
                clock, cpu = time.perf_counter() - clock, time.process_time() - cpu
                rows.append({"cells_per_second": cells / clock, "per_cpu_second": cells / cpu})
    table = pd.DataFrame(rows[1:])
    table.to_csv(options.output, index=False)
    print(table.describe().loc[["min", "50%", "max"]].to_string())


if __name__ == "__main__":
    main()
