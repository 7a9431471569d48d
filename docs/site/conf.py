"""How Sphinx makes the site: pages by MyST, notebooks with their stored outputs, the reference by autodoc."""

import bifkit

project = "bifkit"
author = "bifkit authors"
copyright = "bifkit authors, MIT licence"
version = release = bifkit.__version__
root_doc = "index"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]

nb_execution_mode = "off"  # what a notebook shows is what it stored
nb_merge_streams = True
myst_heading_anchors = 4  # as the repository's page makes them
myst_enable_extensions: list[str] = []  # a dollar is a dollar
suppress_warnings = ["myst.header"]

autodoc_member_order = "bysource"
autosummary_generate = False
napoleon_google_docstring = False
napoleon_use_rtype = False

html_theme = "furo"  # light, dark or the reader's own, and nothing from elsewhere
html_title = "bifkit"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {"light_css_variables": {"color-brand-primary": "#0b62a4", "color-brand-content": "#0b62a4"},
                      "dark_css_variables": {"color-brand-primary": "#7cb8e8", "color-brand-content": "#7cb8e8"}}


def examples(app, what, name, obj, options, lines):
    """Give examples that stand under a docstring's last section a heading of their own, or it would take them in."""
    first = next((i for i, line in enumerate(lines) if line.startswith(">>>")), None)
    headings = [lines[i - 1] for i, line in enumerate(lines) if i and line and not line.strip("-")]
    if first and headings and "Examples" not in headings:
        lines[first:first] = ["Examples", "--------"]


def setup(app):
    """Called by Sphinx; before napoleon reads the docstrings."""
    app.connect("autodoc-process-docstring", examples, priority=100)
