# The whole experiment: from CellxGene to the paper's tables and figures.
#   snakemake --cores all                          the demo (offline, CPU, minutes)
#   snakemake --cores all --config preset=small    real cells, one GPU
#   snakemake --cores all mmd                      one target (workflow/rules/targets.smk)
import os
import time

from snakemake.utils import min_version

min_version("9.27")
STARTED = time.time()


include: "workflow/rules/common.smk"


rule all:
    """Make everything: the report, all tables and figures, and the lock file."""
    default_target: True
    input:
        f"{RESULTS}/report.html",
        result("tables/{name}.csv", name=TABLES),
        result("figures/{name}.png", name=FIGURES),
        LOCK_FILE,
    localrule: True


include: "workflow/rules/corpus.smk"
include: "workflow/rules/tokens.smk"
include: "workflow/rules/training.smk"
include: "workflow/rules/evaluation.smk"
include: "workflow/rules/study.smk"
include: "workflow/rules/benchmarks.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/targets.smk"


report: "workflow/report/workflow.rst"


onstart:
    note_run(".snakemake", os.getpid())
    store_configuration(f"{RESULTS}/config.yaml")
    remove_old_checkpoints()


onsuccess:
    from scsigmoid.report.summary import summary

    print(summary(RESULTS, STARTED))


onerror:
    print(f"Stopped. If a step failed, see 'scsigmoid: error' above and {RESULTS}/logs")
