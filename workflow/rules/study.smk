# Study: collect the runs in CSV files, score their embeddings, and make tables and figures.


rule study_runs:
    """Collect the training runs of a study in CSV files."""
    input:
        journals=study_journals,  # the command finds all inputs next to the configuration
        training=result("tokens/training/part-{part}", part=PLAN.parts),
        evaluation=result("tokens/evaluation/{dataset}", dataset=PLAN.datasets),
    output:
        runs=f"{RESULTS}/study/runs.csv",
        curves=f"{RESULTS}/study/curves.csv",
        layers=f"{RESULTS}/study/layers.csv",
        baselines=f"{RESULTS}/study/baselines.csv",
    log:
        f"{RESULTS}/logs/study_runs.log",
    conda:
        ENVIRONMENT
    resources:
        **limits(mem_mb=16000, runtime=60),
    params:
        version=2,
        configuration=stored_configuration,
        settings=read("study"),
    shell:
        "python -m scsigmoid study-runs --configuration {params.configuration:q}"
        ' --output "$(dirname {output.runs:q})" --log {log:q}'


rule study_scores:
    """Score the embeddings of a study's runs."""
    input:
        embeddings=result("{path}", path=PLAN.study_embeddings()),
        cells=f"{RESULTS}/corpus/evaluation/{PLAN.study_dataset}.h5ad",
    output:
        f"{RESULTS}/study/scores.csv",
    log:
        f"{RESULTS}/logs/study_scores.log",
    conda:
        ENVIRONMENT
    resources:
        **limits(mem_mb=16000, runtime=240),
    params:
        settings=read("seed"),
        configuration=stored_configuration,
    shell:
        "python -m scsigmoid study-scores --embeddings {input.embeddings:q} --cells {input.cells:q}"
        " --configuration {params.configuration:q} --output {output:q} --log {log:q}"


# Run a study with `snakemake --cores all --configfile workflow/studies/arms.yaml -- study`
rule study:
    """Make the tables and figures of the configured study."""
    input:
        runs=rules.study_runs.output.runs,
        scores=rules.study_scores.output if PLAN.study_dataset else [],
    output:
        directory(f"{RESULTS}/study/page"),
    log:
        f"{RESULTS}/logs/study.log",
    conda:
        ENVIRONMENT
    resources:
        **limits(mem_mb=4000, runtime=10),
    params:
        version=3,
        # Without embeddings, the folder may have the scores of an earlier study.
        options=[] if PLAN.study_dataset else ["--without-scores"],
    shell:
        'python -m scsigmoid study --runs "$(dirname {input.runs:q})" --output {output:q} --log {log:q}'
        " {params.options:q}"
