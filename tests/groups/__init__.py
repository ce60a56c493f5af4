"""Groups of tests that may be left out while nothing changes that they read: CONTRIBUTING.md, "What did not change".

``table.toml`` lists them. ``closure`` finds the files that a group reads, ``keys`` hashes them, ``records`` keeps which key passed, and
``runner`` runs groups side by side. ``plugin`` is the part inside pytest.
"""
