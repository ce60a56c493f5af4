"""The task, model and data of ``rlcore quickstart``: everything made on the spot, nothing downloaded."""
