# Training: one job per model.


# Checkpoints and snapshots are not outputs, because Snakemake deletes the outputs of a failed job,
# and an interrupted run continues from its last checkpoint. A model is written after all its
# snapshots. The command starts with `exec`, which replaces the shell. Otherwise, the signal that
# asks training to stop would kill the shell and end the job before the checkpoint is written.
rule train:
    """Train one model."""
    input:
        lambda wildcards: find_outdated(wildcards.model),
        tokens=result("tokens/training/part-{part}", part=PLAN.parts),
        vocabulary=f"{RESULTS}/tokens/vocabulary.parquet",
    output:
        model=f"{RESULTS}/training/{{model}}/model.safetensors",
        journal=f"{RESULTS}/training/{{model}}/journal.csv",
    log:
        f"{RESULTS}/logs/train/{{model}}.log",
    conda:
        ENVIRONMENT
    threads: TRAINING_THREADS
    resources:
        **gpu_resources(TRAINING_GPUS, CONFIG.nodes),
        **limits(mem_mb=4000 + 12_000 * TRAINING_GPUS),
        nodes=CONFIG.nodes,
        # The Slurm plugin treats several nodes as an MPI job, whose command calls `srun` itself.
        mpi="srun" if CONFIG.nodes > 1 else None,
        tasks=CONFIG.nodes if CONFIG.nodes > 1 else None,
        tasks_per_gpu=0,
        processes=max(1, TRAINING_GPUS),  # on each node
        # The Slurm profile's options send training a signal before its time limit.
        slurm_extra=default_resource("training_extra"),
        cpus_per_task=TRAINING_GPUS * (default_resource("training_cpus_per_gpu") or 0) or None,
    params:
        # The content of the initial model, whose file may be newer, e.g. after an installation.
        **(
            {"initial": lambda wildcards: PLAN.initial_checksum(wildcards.model)}
            if PLAN.initial
            else {}
        ),
        # `run` merges the values of the model or of the study into the general settings. `size`,
        # `training` and `study` are named for docs/configuration.md.
        settings=read(
            "models.{model}.attention",
            "models.{model}.context",
            "models.{model}.size",
            "models.{model}.backend",
            "models.{model}.training",
            "study.{model}.attention",
            "study.{model}.context",
            "study.{model}.size",
            "study.{model}.seed",
            "study.{model}.variants",
            "study.{model}.training",
            "architecture",
            "sizes",
            "training",
            "tokens.cls",
            "seed",
            run="{model}",  # the values of this model or run of the study only
        ),
        configuration=stored_configuration,
    shell:
        "exec python -m scsigmoid train --model {wildcards.model} --tokens {input.tokens:q}"
        " --vocabulary {input.vocabulary:q} --configuration {params.configuration:q}"
        ' --output "$(dirname {output.model:q})" --gpus {resources.processes}'
        " --nodes {resources.nodes} --log {log:q}"
