"""The simulated evaluation datasets and the cell types in them."""

from dataclasses import dataclass

# The facets of each simulated cell type.
FACETS: dict[str, tuple[str, ...]] = {
    # Heart OFT, named as in tab:mmd_heart_oft
    "Mesenchymal": ("stromal", "fetal"),
    "Cardiac": ("muscle", "fetal"),
    "Endothelial": ("vascular", "fetal"),
    "Immune": ("immune", "fetal"),
    "Neural": ("neural", "fetal"),
    "Adult endothelial": ("vascular", "adult"),
    "Adult valve interstitial": ("stromal", "adult"),
    "Adult immune": ("immune", "adult"),
    # Cell Ontology names
    "glutamatergic neuron": ("neural", "neuron", "adult"),
    "GABAergic neuron": ("neural", "neuron", "adult"),
    "astrocyte": ("neural", "glia", "adult"),
    "oligodendrocyte": ("neural", "glia", "adult"),
    "oligodendrocyte precursor cell": ("neural", "glia"),
    "microglial cell": ("immune", "myeloid", "adult"),
    "CD4-positive, alpha-beta T cell": ("immune", "lymphoid", "T cell"),
    "CD8-positive, alpha-beta T cell": ("immune", "lymphoid", "T cell"),
    "natural killer cell": ("immune", "lymphoid"),
    "B cell": ("immune", "lymphoid", "B lineage"),
    "plasma cell": ("immune", "B lineage"),
    "CD14-positive monocyte": ("immune", "myeloid"),
    "CD16-positive monocyte": ("immune", "myeloid"),
    "dendritic cell": ("immune", "myeloid"),
    "alveolar macrophage": ("immune", "myeloid", "adult"),
    "platelet": ("megakaryocyte",),
    "enterocyte": ("epithelial", "gut"),
    "intestinal goblet cell": ("epithelial", "gut"),
    "intestinal stem cell": ("epithelial", "gut", "fetal"),
    "pulmonary alveolar type 1 cell": ("epithelial", "lung"),
    "pulmonary alveolar type 2 cell": ("epithelial", "lung"),
    "ciliated epithelial cell": ("epithelial", "lung"),
    "fibroblast": ("stromal", "adult"),
    "capillary endothelial cell": ("vascular", "adult"),
}


@dataclass(frozen=True)
class Simulated:
    """One simulated evaluation dataset: its tissue and cell types."""

    tissue: str
    cell_types: tuple[str, ...]


DATASETS: dict[str, Simulated] = {
    "adolescent_brain": Simulated(
        "brain",
        (
            "glutamatergic neuron",
            "GABAergic neuron",
            "astrocyte",
            "oligodendrocyte",
            "oligodendrocyte precursor cell",
            "microglial cell",
        ),
    ),
    "aging_pbmc": Simulated(
        "blood",
        (
            "CD4-positive, alpha-beta T cell",
            "CD8-positive, alpha-beta T cell",
            "natural killer cell",
            "B cell",
            "CD14-positive monocyte",
            "CD16-positive monocyte",
            "dendritic cell",
        ),
    ),
    "healthy_colon": Simulated(
        "colon",
        (
            "enterocyte",
            "intestinal goblet cell",
            "intestinal stem cell",
            "fibroblast",
            "plasma cell",
            "CD4-positive, alpha-beta T cell",
        ),
    ),
    "heart_oft": Simulated(
        "outflow tract",
        (
            "Mesenchymal",
            "Cardiac",
            "Endothelial",
            "Immune",
            "Neural",
            "Adult endothelial",
            "Adult valve interstitial",
            "Adult immune",
        ),
    ),
    "indonesian_pbmc": Simulated(
        "blood",
        (
            "CD4-positive, alpha-beta T cell",
            "CD8-positive, alpha-beta T cell",
            "natural killer cell",
            "B cell",
            "CD14-positive monocyte",
            "platelet",
        ),
    ),
    "lung_acr": Simulated(
        "lung",
        (
            "pulmonary alveolar type 1 cell",
            "pulmonary alveolar type 2 cell",
            "ciliated epithelial cell",
            "alveolar macrophage",
            "capillary endothelial cell",
            "fibroblast",
            "CD8-positive, alpha-beta T cell",
        ),
    ),
}
