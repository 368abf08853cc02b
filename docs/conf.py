"""The documentation site: ``make docs`` writes it to site/."""

from importlib.metadata import version as installed

project = "scsigmoid"
author = "The scsigmoid developers"
release = version = installed("scsigmoid")
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "scsigmoid"
html_show_copyright = False
exclude_patterns = ["measurements/h200", "measurements/cpu"]
nitpicky = False
myst_heading_anchors = 3
nb_execution_mode = "off"  # the tests execute the tutorials
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = True
