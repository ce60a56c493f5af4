"""The data sources ``csv``, ``parquet`` and ``hub``. Importing this loads neither pyarrow nor datasets."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.api import DataSourceSpec, hookimpl

rlcore_api = "1.0"


@hookimpl
def rlcore_register_data_sources() -> Sequence[DataSourceSpec]:
    """Offer tables, and the hub."""
    return [
        DataSourceSpec(
            name="csv",
            target="rlcore_plugin_tables.csv_file:CsvFile",
            config="rlcore_plugin_tables.csv_file:CsvOptions",
            summary="CSV with a header; every column is text",
            suffixes=(".csv", ".csv.gz"),
        ),
        DataSourceSpec(
            name="parquet",
            target="rlcore_plugin_tables.tables:ParquetFile",
            summary="Parquet; needs pyarrow",
            suffixes=(".parquet",),
        ),
        DataSourceSpec(
            name="hub",
            target="rlcore_plugin_tables.tables:HubRows",
            summary="hf:NAME, hf:NAME:SPLIT or hf:NAME:CONFIG:SPLIT of the Hugging Face hub, or a folder saved by datasets",
            prefix="hf:",
            folders=True,
        ),
    ]
