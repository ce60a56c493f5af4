"""Build, try and check a release: docs/maintainers/releasing.md.

``projects`` reads the distributions of the repository and keeps their versions in step, ``dists`` builds them, ``clean`` installs them into
a new environment and uses them there, and ``checklist`` performs the release checklist.
"""
