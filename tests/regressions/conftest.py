"""Fixtures of the other folders, for tests that were moved from there."""

from attention.conftest import gpu
from corpus.conftest import corpus, counts, lock, published, service, web, write_h5ad
from evaluation.conftest import cells, checkpoint, make_store, store, write_arm
from forecast.conftest import own
from made_up_results import (
    config,
    copied,
    finished,
    folder,
    paper_config,
    paper_results,
    results,
    whole,
)
from tokens.conftest import part, vocabulary, write_part
from training.checkpoint_files import checkpoints
from workflow.conftest import make_project
