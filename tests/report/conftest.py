"""The made-up results of tests/paper."""

from paper.conftest import config, copied, finished, folder, paper_config, paper_results, results

__all__ = ["config", "copied", "finished", "folder", "paper_config", "paper_results", "results"]
