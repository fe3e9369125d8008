"""A table that is exactly these files, however many more there are beside them.

The engine reads one path, or all files of a folder. In a logical plan a scan has a list of paths, so a scan of the
first file is planned, and the list is put in.
"""

from collections.abc import Sequence

import datafusion as df
import pyarrow as pa

from rota.wire.plans import plan_pb2 as pb
from rota.wire.stores import register, store_of


def frame_of_files(context: df.SessionContext, files: Sequence[str], schema: pa.Schema) -> df.DataFrame:
    """The rows of these Parquet files, which have these columns, or some of them."""
    for store in sorted({store_of(file) for file in files if "://" in file} - {""}):
        register(context, store)
    scan = context.read_parquet(files[0], schema=schema).logical_plan()
    node = pb.LogicalNode.FromString(scan.to_bytes(context))
    assert len(node.listing.paths) == 1, "a scan of one file"
    del node.listing.paths[:]
    node.listing.paths.extend(files)
    plan = df.LogicalPlan.from_bytes(context, node.SerializeToString())
    return context.create_dataframe_from_logical_plan(plan)
