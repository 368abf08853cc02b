# Training: four models for the comparison, two for the stress test.


# Checkpoints and snapshots lie beside the outputs and are not among them: Snakemake deletes the
# outputs of a failed job, and a run that was cut off goes on from its last checkpoint.  A model is
# written once all its snapshots are there, and new `snapshots` are new settings; a run that is past
# one that is missing ends with an error.  `gpu` and `nodes` are what is asked of a cluster,
# `processes` what is started on each machine.  `exec`: the shell would die of the signal that asks
# training to stop, and take the job with it before the checkpoint is written.
rule train:
    input:
        tokens=result("tokens/training/part-{part}", part=PLAN.parts),
        vocabulary=f"{RESULTS}/tokens/vocabulary.parquet",
        # checked before: labels, cell types, genes; a newer file trains nothing again
        evaluated=ancient(result("tokens/evaluation/{dataset}", dataset=PLAN.datasets)),
    output:
        model=f"{RESULTS}/training/{{model}}/model.safetensors",
        journal=f"{RESULTS}/training/{{model}}/journal.csv",
    log:
        f"{RESULTS}/logs/train/{{model}}.log",
    benchmark:
        f"{RESULTS}/resources/train/{{model}}.tsv"
    conda:
        ENVIRONMENT
    resources:
        gpu=TRAINING_GPUS * CONFIG.nodes,
        nodes=CONFIG.nodes,
        # Slurm: several nodes are one MPI job for the plugin, which leaves `srun` to the command
        mpi="srun" if CONFIG.nodes > 1 else None,
        tasks=CONFIG.nodes if CONFIG.nodes > 1 else None,
        tasks_per_gpu=0,
        processes=max(1, TRAINING_GPUS),
        mem_mb=4000,
    params:
        # Snakemake compares no parameter that is made of outputs: of the settings only `compared`
        # can make a model be trained again.
        settings=lambda wildcards, output: check.as_json(
            {f"models.{wildcards.model}": PLAN.run(wildcards.model)}
        ),
        compared=lambda wildcards: check.as_json(PLAN.compared_run(wildcards.model)),
    shell:
        "exec python -m scsigmoid train --model {wildcards.model} --tokens {input.tokens:q}"
        " --vocabulary {input.vocabulary:q} --settings {params.settings:q}"
        ' --output "$(dirname {output.model:q})" --gpus {resources.processes}'
        " --nodes {resources.nodes} --log {log:q}"
