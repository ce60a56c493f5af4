"""Sphinx's settings of the site. ``python -m tools.site`` copies this file beside the pages."""

project = "rlcore"
author = "the rlcore authors"
copyright = "the rlcore authors"  # Sphinx reads this name
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = "rlcore"
html_show_sphinx = False
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
autodoc_typehints = "description"
autodoc_default_options = {"members": True, "undoc-members": False, "inherited-members": False, "show-inheritance": True}
suppress_warnings = ["ref.python"]  # names that two pages have are the same
copybutton_prompt_text = "$ "


def setup(app):
    """Connect what turns the docstrings into reStructuredText."""
    app.connect("autodoc-process-docstring", _listed_fields)


def _listed_fields(app, what, name, obj, options, lines):
    """Make a list item of each field that a docstring explains (```name``: …``), with its indented lines."""
    found, item = [], False
    for line in lines:
        indented = line.startswith(" ") and line.strip()
        if line.startswith("``") and not line.startswith("``.") and ": " in line:
            if found and found[-1] and not item:
                found.append("")
            found.append(f"* {line}")
            item = True
        elif item and line.strip() and (indented or not line.startswith(":")):
            found.append(f"  {line.strip()}")
        else:
            if item and line.strip():
                found.append("")
            item = False
            found.append(line)
    lines[:] = found
