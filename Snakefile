# The workflow is in workflow/Snakefile. This file is for commands and profiles in a clone.
include: "workflow/Snakefile"


# An included file does not set the default target.
workflow.default_target = workflow.modifier.modify_rulename("all")
