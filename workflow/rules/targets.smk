# Named targets: `snakemake --cores all <name>` makes one part and what it needs.


localrules:
    corpus,
    tokens,
    training,
    stress_test,
    embedding,
    validation_loss,
    scib,
    mmd,
    umap,
    kernel_benchmark,
    throughput_benchmark,
    training_benchmark,
    tables,
    figures,


rule corpus:
    input:
        result("corpus/training/part-{part}", part=PLAN.parts),
        result("corpus/evaluation/{dataset}.h5ad", dataset=PLAN.datasets),
        lock_file(),


rule tokens:
    input:
        result("tokens/training/part-{part}", part=PLAN.parts),
        result("tokens/evaluation/{dataset}", dataset=PLAN.datasets),
        f"{RESULTS}/figures/sequence_lengths.png",


rule training:
    input:
        result("training/{model}/model.safetensors", model=CONFIG.models),


rule stress_test:
    input:
        f"{RESULTS}/figures/stability.png",


rule embedding:
    input:
        result(
            "embeddings/{dataset}/{model}.h5ad",
            dataset=PLAN.datasets,
            model=PLAN.evaluated_models,
        ),


rule validation_loss:
    input:
        f"{RESULTS}/tables/validation_loss.csv",
        f"{RESULTS}/figures/loss.png",


rule scib:
    input:
        f"{RESULTS}/tables/scib.csv",
        f"{RESULTS}/figures/scib.png",


rule mmd:
    input:
        result("tables/mmd_{dataset}.csv", dataset=PLAN.compared("mmd")),


rule umap:
    input:
        result("figures/umap_{dataset}.png", dataset=PLAN.compared("umap")),


rule kernel_benchmark:
    input:
        f"{RESULTS}/tables/kernel_speed.csv",
        f"{RESULTS}/tables/kernel_ratios.csv",
        f"{RESULTS}/figures/tflops.png",
        f"{RESULTS}/figures/latency.png",


rule throughput_benchmark:
    input:
        f"{RESULTS}/tables/training_cost.csv",
        f"{RESULTS}/figures/gpu_hours.png",


rule training_benchmark:
    input:
        f"{RESULTS}/tables/training_speed.csv",


rule tables:
    input:
        result("tables/{name}.csv", name=TABLES),


rule figures:
    input:
        result("figures/{name}.png", name=FIGURES),
