"""Time the embedding of the same cells by scsigmoid, helical and Geneformer, on the CPU.

    python workflow/scripts/time_embedding.py cells.h5ad --dictionaries geneformer/ --cells 256 \
      --rival helical=venv/bin/python --rival geneformer=venv/bin/python --output embedding.csv

All models have Geneformer V1's dimensions and vocabulary and random weights, which take the time of
trained ones.  Each program runs in a process of its own; in each round they embed the cells in
turn, from the h5ad file to an array, after 8 cells to warm up.  ``--dictionaries`` has Geneformer's
``token_dictionary.pkl`` and ``gene_median_dictionary.pkl``.  Geneformer's own code runs on GPUs
alone: where its files say ``cuda``, write ``cpu``.
"""

import argparse
import csv
import json
import os
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

LAYERS, HIDDEN, HEADS, FEED_FORWARD, CONTEXT = 6, 256, 4, 512, 2048
BATCH = 24  # cells, helical's own; of as many tokens as the longest has, with padding


def ours(attention: str, folder: Path) -> Callable[[Path], Any]:
    """Embed with an untrained model of this project."""
    import numpy as np

    from scsigmoid.config.schema import Embeddings
    from scsigmoid.evaluation import own_cells
    from scsigmoid.model.encoder import Encoder
    from scsigmoid.model.sizes import EncoderSettings
    from scsigmoid.tokens.vocabulary import SPECIAL, Vocabulary

    medians = pickle.loads((folder / "gene_median_dictionary.pkl").read_bytes())
    genes = (*SPECIAL, *medians)
    values = np.array([1.0] * len(SPECIAL) + list(medians.values()))
    vocabulary = Vocabulary(genes, genes, np.ones(len(genes), int), values)
    settings = EncoderSettings(
        attention=attention,
        context=CONTEXT,
        layers=LAYERS,
        hidden=HIDDEN,
        heads=HEADS,
        feed_forward=FEED_FORWARD,
        vocabulary_size=len(genes),
        dropout=0.02,
        layer_norm_epsilon=1e-12,
        initializer_range=0.02,
        cls_token=False,
    )
    encoder = Encoder(settings).initialise(0).eval()
    model = own_cells.Model(folder / "token_dictionary.pkl", encoder, vocabulary, {"model": "m"})

    def embed(path: Path) -> Any:
        with own_cells.token_store(model, path, "", "") as store:
            how = Embeddings(pooling="mean", batch_tokens=own_cells.BATCH_TOKENS)
            return own_cells.vectors_of_store(encoder, store, how, "embedding")

    return embed


def bert(folder: Path) -> None:
    """Write an untrained Geneformer V1 (transformers' BERT) with its configuration."""
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        num_hidden_layers=LAYERS,
        hidden_size=HIDDEN,
        num_attention_heads=HEADS,
        intermediate_size=FEED_FORWARD,
        max_position_embeddings=CONTEXT,
        hidden_act="relu",
        vocab_size=25_426,
        pad_token_id=0,
    )
    BertForMaskedLM(config).save_pretrained(folder)


def helical(folder: Path, work: Path) -> Callable[[Path], Any]:
    """Embed by helical's Geneformer; its download finds what is written here."""
    import shutil

    os.environ["CACHE_DIR_HELICAL_PREFIX"] = str(work)
    import anndata
    from helical.models.geneformer import Geneformer, GeneformerConfig
    from helical.utils.downloader import Downloader

    place = work / ".cache/helical/models/geneformer/v1"
    bert(place / "gf-6L-10M-i2048")
    for name in ("gene_median_dictionary.pkl", "token_dictionary.pkl"):
        shutil.copy(folder / name, place)
    genes = pickle.loads((folder / "gene_median_dictionary.pkl").read_bytes())
    (place / "ensembl_mapping_dict.pkl").write_bytes(pickle.dumps({gene: gene for gene in genes}))
    Downloader.download_via_name = lambda self, name: None
    model = Geneformer(GeneformerConfig(model_name="gf-6L-10M-i2048", batch_size=BATCH))

    def embed(path: Path) -> Any:
        adata = anndata.read_h5ad(path)
        return model.get_embeddings(model.process_data(adata, gene_names="ensembl_id"))

    return embed


def geneformer(folder: Path, work: Path) -> Callable[[Path], Any]:
    """Embed by Geneformer's tokenizer and extractor."""
    import anndata

    anndata.read = anndata.read_h5ad  # gone since 0.12
    from geneformer import emb_extractor
    from geneformer.tokenizer import TranscriptomeTokenizer

    bert(work / "model")
    load = emb_extractor.BertForMaskedLM.from_pretrained
    emb_extractor.load_model = lambda kind, classes, place: load(
        place, output_hidden_states=True
    ).eval()  # theirs moves it to a GPU
    extractor = emb_extractor.EmbExtractor(max_ncells=None, forward_batch_size=BATCH, nproc=1)

    def embed(path: Path) -> Any:
        with tempfile.TemporaryDirectory(dir=work) as made:
            Path(made, "in").mkdir()
            Path(made, "in/cells.h5ad").symlink_to(path)
            TranscriptomeTokenizer().tokenize_data(f"{made}/in", made, "cells", "h5ad")
            given = (work / "model", f"{made}/cells.dataset", made, "out")
            return extractor.extract_embs(*given).to_numpy()

    return embed


def serve(name: str, folder: Path) -> None:
    """Embed the file that each line of standard input names; print JSON."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    with tempfile.TemporaryDirectory() as work:
        arm, _, attention = name.partition(" ")
        makers = {"helical": helical, "geneformer": geneformer}
        embed = makers[arm](folder, Path(work)) if arm in makers else ours(attention, folder)
        for line in sys.stdin:
            clock, cpu = time.perf_counter(), time.process_time()
            shape = embed(Path(line.strip())).shape
            found = {
                "seconds": time.perf_counter() - clock,
                "cpu_seconds": time.process_time() - cpu,
                "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
                "shape": list(shape),
                "torch": version("torch"),
                "version": version(arm),
            }
            print(json.dumps(found), file=answers, flush=True)


def write_cells(path: Path, cells: int, genes: set[str], output: Path) -> None:
    """Some cells of a file, raw counts in ``X``, with the columns that the rivals read."""
    import anndata
    import numpy as np

    adata = anndata.read_h5ad(path)
    adata = adata.raw.to_adata() if adata.raw is not None else adata
    adata = adata[:, [gene in genes for gene in adata.var_names]]
    keep = np.random.default_rng(0).permutation(adata.n_obs)[:cells]
    few = anndata.AnnData(X=adata.X[keep].astype(np.float32))
    few.var_names = adata.var_names
    few.var["ensembl_id"] = adata.var_names.to_numpy()
    few.obs["n_counts"] = np.asarray(few.X.sum(axis=1)).ravel()
    few.write_h5ad(output)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("files", nargs="*", type=Path, help="h5ad files")
    parser.add_argument("--dictionaries", type=Path, required=True, help="folder of Geneformer's")
    parser.add_argument("--rival", action="append", default=[], help="NAME=PYTHON")
    parser.add_argument("--cells", type=int, default=256, help="of each file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, help="CSV file")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve(options.serve, options.dictionaries)
        return
    genes = set(pickle.loads((options.dictionaries / "gene_median_dictionary.pkl").read_bytes()))
    arms = {f"scsigmoid {a}": sys.executable for a in ("sigmoid", "softmax")}
    arms |= dict(rival.split("=", 1) for rival in options.rival)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for path in options.files:
            few, some = Path(folder, "few.h5ad"), Path(folder, "cells.h5ad")
            write_cells(path, 8, genes, few)
            write_cells(path, options.cells, genes, some)
            given = ["--dictionaries", str(options.dictionaries)]
            environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
            servers = {
                name: subprocess.Popen(
                    [python, __file__, "--serve", name, *given],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=environment,
                )
                for name, python in arms.items()
            }
            for round_ in range(-1, options.rounds):
                for name, server in servers.items():
                    print(few if round_ < 0 else some, file=server.stdin, flush=True)
                    line = server.stdout.readline()
                    if not line:
                        raise SystemExit(f"{name} failed; see above")
                    found = json.loads(line)
                    if round_ >= 0:
                        size = {"data": path.stem, "cells": found.pop("shape")[0]}
                        row = {"program": name, **size, "threads": options.threads, **found}
                        rows.append(row | {"round": round_, "date": time.strftime("%Y-%m-%d")})
                        print(row, flush=True)
            for server in servers.values():
                server.stdin.close()
                server.wait()
    with options.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
