"""What the engine has to be told so that a part of a plan gives its part of the rows."""

# Wherever a part of a plan is run. Otherwise a task would also read the files of others: in one process, partitions
# help each other out.
EXECUTING: tuple[tuple[str, str], ...] = (("datafusion.execution.enable_file_stream_work_stealing", "false"),)

# Settings of a session that change answers or plans are sent with a plan. Memory, paths and concurrency are the
# worker's own.
_SENT_GROUPS = ("datafusion.optimizer.", "datafusion.format.", "datafusion.spark.")
_SENT = frozenset(
    f"datafusion.execution.{name}"
    for name in (
        "collect_statistics",
        "enable_ansi_mode",
        "enable_recursive_ctes",
        "keep_partition_by_columns",
        "listing_table_ignore_subdirectory",
        "parquet.binary_as_string",
        "parquet.bloom_filter_on_read",
        "parquet.coerce_int96",
        "parquet.coerce_int96_tz",
        "parquet.enable_page_index",
        "parquet.force_filter_selections",
        "parquet.pruning",
        "parquet.pushdown_filters",
        "parquet.reorder_filters",
        "parquet.schema_force_view_types",
        "parquet.skip_metadata",
        "skip_physical_aggregate_schema_check",
        "split_file_groups_by_statistics",
        "time_zone",
    )
)


def is_sent(name: str) -> bool:
    """Whether a setting of a session is sent with its plans, and taken by a worker."""
    return name in _SENT or name.startswith(_SENT_GROUPS)
