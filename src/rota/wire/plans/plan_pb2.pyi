from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JoinType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INNER: _ClassVar[JoinType]
    LEFT: _ClassVar[JoinType]
    RIGHT: _ClassVar[JoinType]
    FULL: _ClassVar[JoinType]
    LEFT_SEMI: _ClassVar[JoinType]
    LEFT_ANTI: _ClassVar[JoinType]
    RIGHT_SEMI: _ClassVar[JoinType]
    RIGHT_ANTI: _ClassVar[JoinType]
    LEFT_MARK: _ClassVar[JoinType]
    RIGHT_MARK: _ClassVar[JoinType]

class PartitionMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COLLECT_LEFT: _ClassVar[PartitionMode]
    PARTITIONED: _ClassVar[PartitionMode]
    AUTO: _ClassVar[PartitionMode]
INNER: JoinType
LEFT: JoinType
RIGHT: JoinType
FULL: JoinType
LEFT_SEMI: JoinType
LEFT_ANTI: JoinType
RIGHT_SEMI: JoinType
RIGHT_ANTI: JoinType
LEFT_MARK: JoinType
RIGHT_MARK: JoinType
COLLECT_LEFT: PartitionMode
PARTITIONED: PartitionMode
AUTO: PartitionMode

class PlanNode(_message.Message):
    __slots__ = ("parquet_scan", "csv_scan", "empty", "projection", "global_limit", "local_limit", "aggregate", "hash_join", "sort", "coalesce_batches", "filter", "coalesce_partitions", "repartition", "window", "cross_join", "union", "sort_preserving_merge", "nested_loop_join", "interleave", "placeholder_row", "unnest", "json_scan", "cooperative", "generate_series", "sort_merge_join", "memory_scan", "arrow_scan", "scalar_subquery")
    PARQUET_SCAN_FIELD_NUMBER: _ClassVar[int]
    CSV_SCAN_FIELD_NUMBER: _ClassVar[int]
    EMPTY_FIELD_NUMBER: _ClassVar[int]
    PROJECTION_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_LIMIT_FIELD_NUMBER: _ClassVar[int]
    LOCAL_LIMIT_FIELD_NUMBER: _ClassVar[int]
    AGGREGATE_FIELD_NUMBER: _ClassVar[int]
    HASH_JOIN_FIELD_NUMBER: _ClassVar[int]
    SORT_FIELD_NUMBER: _ClassVar[int]
    COALESCE_BATCHES_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    COALESCE_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPARTITION_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    CROSS_JOIN_FIELD_NUMBER: _ClassVar[int]
    UNION_FIELD_NUMBER: _ClassVar[int]
    SORT_PRESERVING_MERGE_FIELD_NUMBER: _ClassVar[int]
    NESTED_LOOP_JOIN_FIELD_NUMBER: _ClassVar[int]
    INTERLEAVE_FIELD_NUMBER: _ClassVar[int]
    PLACEHOLDER_ROW_FIELD_NUMBER: _ClassVar[int]
    UNNEST_FIELD_NUMBER: _ClassVar[int]
    JSON_SCAN_FIELD_NUMBER: _ClassVar[int]
    COOPERATIVE_FIELD_NUMBER: _ClassVar[int]
    GENERATE_SERIES_FIELD_NUMBER: _ClassVar[int]
    SORT_MERGE_JOIN_FIELD_NUMBER: _ClassVar[int]
    MEMORY_SCAN_FIELD_NUMBER: _ClassVar[int]
    ARROW_SCAN_FIELD_NUMBER: _ClassVar[int]
    SCALAR_SUBQUERY_FIELD_NUMBER: _ClassVar[int]
    parquet_scan: FileScan
    csv_scan: FileScan
    empty: Rowless
    projection: Single
    global_limit: Single
    local_limit: LocalLimit
    aggregate: Aggregate
    hash_join: HashJoin
    sort: Sort
    coalesce_batches: Single
    filter: Single
    coalesce_partitions: Coalesce
    repartition: Repartition
    window: Single
    cross_join: Pair
    union: Many
    sort_preserving_merge: Merge
    nested_loop_join: NestedLoopJoin
    interleave: Many
    placeholder_row: Rowless
    unnest: Single
    json_scan: FileScan
    cooperative: Single
    generate_series: Series
    sort_merge_join: Pair
    memory_scan: MemoryScan
    arrow_scan: FileScan
    scalar_subquery: Subqueries
    def __init__(self, parquet_scan: _Optional[_Union[FileScan, _Mapping]] = ..., csv_scan: _Optional[_Union[FileScan, _Mapping]] = ..., empty: _Optional[_Union[Rowless, _Mapping]] = ..., projection: _Optional[_Union[Single, _Mapping]] = ..., global_limit: _Optional[_Union[Single, _Mapping]] = ..., local_limit: _Optional[_Union[LocalLimit, _Mapping]] = ..., aggregate: _Optional[_Union[Aggregate, _Mapping]] = ..., hash_join: _Optional[_Union[HashJoin, _Mapping]] = ..., sort: _Optional[_Union[Sort, _Mapping]] = ..., coalesce_batches: _Optional[_Union[Single, _Mapping]] = ..., filter: _Optional[_Union[Single, _Mapping]] = ..., coalesce_partitions: _Optional[_Union[Coalesce, _Mapping]] = ..., repartition: _Optional[_Union[Repartition, _Mapping]] = ..., window: _Optional[_Union[Single, _Mapping]] = ..., cross_join: _Optional[_Union[Pair, _Mapping]] = ..., union: _Optional[_Union[Many, _Mapping]] = ..., sort_preserving_merge: _Optional[_Union[Merge, _Mapping]] = ..., nested_loop_join: _Optional[_Union[NestedLoopJoin, _Mapping]] = ..., interleave: _Optional[_Union[Many, _Mapping]] = ..., placeholder_row: _Optional[_Union[Rowless, _Mapping]] = ..., unnest: _Optional[_Union[Single, _Mapping]] = ..., json_scan: _Optional[_Union[FileScan, _Mapping]] = ..., cooperative: _Optional[_Union[Single, _Mapping]] = ..., generate_series: _Optional[_Union[Series, _Mapping]] = ..., sort_merge_join: _Optional[_Union[Pair, _Mapping]] = ..., memory_scan: _Optional[_Union[MemoryScan, _Mapping]] = ..., arrow_scan: _Optional[_Union[FileScan, _Mapping]] = ..., scalar_subquery: _Optional[_Union[Subqueries, _Mapping]] = ...) -> None: ...

class Single(_message.Message):
    __slots__ = ("input",)
    INPUT_FIELD_NUMBER: _ClassVar[int]
    input: bytes
    def __init__(self, input: _Optional[bytes] = ...) -> None: ...

class Pair(_message.Message):
    __slots__ = ("left", "right")
    LEFT_FIELD_NUMBER: _ClassVar[int]
    RIGHT_FIELD_NUMBER: _ClassVar[int]
    left: bytes
    right: bytes
    def __init__(self, left: _Optional[bytes] = ..., right: _Optional[bytes] = ...) -> None: ...

class Many(_message.Message):
    __slots__ = ("inputs",)
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    inputs: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, inputs: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Subqueries(_message.Message):
    __slots__ = ("input", "subqueries")
    INPUT_FIELD_NUMBER: _ClassVar[int]
    SUBQUERIES_FIELD_NUMBER: _ClassVar[int]
    input: bytes
    subqueries: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, input: _Optional[bytes] = ..., subqueries: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Aggregate(_message.Message):
    __slots__ = ("input",)
    INPUT_FIELD_NUMBER: _ClassVar[int]
    input: bytes
    def __init__(self, input: _Optional[bytes] = ...) -> None: ...

class LocalLimit(_message.Message):
    __slots__ = ("input", "fetch")
    INPUT_FIELD_NUMBER: _ClassVar[int]
    FETCH_FIELD_NUMBER: _ClassVar[int]
    input: bytes
    fetch: int
    def __init__(self, input: _Optional[bytes] = ..., fetch: _Optional[int] = ...) -> None: ...

class Coalesce(_message.Message):
    __slots__ = ("input", "fetch")
    INPUT_FIELD_NUMBER: _ClassVar[int]
    FETCH_FIELD_NUMBER: _ClassVar[int]
    input: bytes
    fetch: int
    def __init__(self, input: _Optional[bytes] = ..., fetch: _Optional[int] = ...) -> None: ...

class Sort(_message.Message):
    __slots__ = ("input", "exprs", "fetch", "preserve_partitioning")
    INPUT_FIELD_NUMBER: _ClassVar[int]
    EXPRS_FIELD_NUMBER: _ClassVar[int]
    FETCH_FIELD_NUMBER: _ClassVar[int]
    PRESERVE_PARTITIONING_FIELD_NUMBER: _ClassVar[int]
    input: bytes
    exprs: _containers.RepeatedScalarFieldContainer[bytes]
    fetch: int
    preserve_partitioning: bool
    def __init__(self, input: _Optional[bytes] = ..., exprs: _Optional[_Iterable[bytes]] = ..., fetch: _Optional[int] = ..., preserve_partitioning: _Optional[bool] = ...) -> None: ...

class Merge(_message.Message):
    __slots__ = ("input", "exprs", "fetch")
    INPUT_FIELD_NUMBER: _ClassVar[int]
    EXPRS_FIELD_NUMBER: _ClassVar[int]
    FETCH_FIELD_NUMBER: _ClassVar[int]
    input: bytes
    exprs: _containers.RepeatedScalarFieldContainer[bytes]
    fetch: int
    def __init__(self, input: _Optional[bytes] = ..., exprs: _Optional[_Iterable[bytes]] = ..., fetch: _Optional[int] = ...) -> None: ...

class Repartition(_message.Message):
    __slots__ = ("input", "partitioning", "preserve_order")
    INPUT_FIELD_NUMBER: _ClassVar[int]
    PARTITIONING_FIELD_NUMBER: _ClassVar[int]
    PRESERVE_ORDER_FIELD_NUMBER: _ClassVar[int]
    input: bytes
    partitioning: Partitioning
    preserve_order: bool
    def __init__(self, input: _Optional[bytes] = ..., partitioning: _Optional[_Union[Partitioning, _Mapping]] = ..., preserve_order: _Optional[bool] = ...) -> None: ...

class Partitioning(_message.Message):
    __slots__ = ("round_robin", "hash")
    ROUND_ROBIN_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    round_robin: int
    hash: HashPartitioning
    def __init__(self, round_robin: _Optional[int] = ..., hash: _Optional[_Union[HashPartitioning, _Mapping]] = ...) -> None: ...

class HashPartitioning(_message.Message):
    __slots__ = ("exprs", "partitions")
    EXPRS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    exprs: _containers.RepeatedScalarFieldContainer[bytes]
    partitions: int
    def __init__(self, exprs: _Optional[_Iterable[bytes]] = ..., partitions: _Optional[int] = ...) -> None: ...

class JoinKeys(_message.Message):
    __slots__ = ("left", "right")
    LEFT_FIELD_NUMBER: _ClassVar[int]
    RIGHT_FIELD_NUMBER: _ClassVar[int]
    left: bytes
    right: bytes
    def __init__(self, left: _Optional[bytes] = ..., right: _Optional[bytes] = ...) -> None: ...

class HashJoin(_message.Message):
    __slots__ = ("left", "right", "keys", "join_type", "mode", "null_aware")
    LEFT_FIELD_NUMBER: _ClassVar[int]
    RIGHT_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    JOIN_TYPE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    NULL_AWARE_FIELD_NUMBER: _ClassVar[int]
    left: bytes
    right: bytes
    keys: _containers.RepeatedCompositeFieldContainer[JoinKeys]
    join_type: JoinType
    mode: PartitionMode
    null_aware: bool
    def __init__(self, left: _Optional[bytes] = ..., right: _Optional[bytes] = ..., keys: _Optional[_Iterable[_Union[JoinKeys, _Mapping]]] = ..., join_type: _Optional[_Union[JoinType, str]] = ..., mode: _Optional[_Union[PartitionMode, str]] = ..., null_aware: _Optional[bool] = ...) -> None: ...

class NestedLoopJoin(_message.Message):
    __slots__ = ("left", "right", "join_type")
    LEFT_FIELD_NUMBER: _ClassVar[int]
    RIGHT_FIELD_NUMBER: _ClassVar[int]
    JOIN_TYPE_FIELD_NUMBER: _ClassVar[int]
    left: bytes
    right: bytes
    join_type: JoinType
    def __init__(self, left: _Optional[bytes] = ..., right: _Optional[bytes] = ..., join_type: _Optional[_Union[JoinType, str]] = ...) -> None: ...

class Rowless(_message.Message):
    __slots__ = ("schema", "partitions")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    schema: bytes
    partitions: int
    def __init__(self, schema: _Optional[bytes] = ..., partitions: _Optional[int] = ...) -> None: ...

class Series(_message.Message):
    __slots__ = ("schema", "numbers")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    schema: bytes
    numbers: bytes
    def __init__(self, schema: _Optional[bytes] = ..., numbers: _Optional[bytes] = ...) -> None: ...

class MemoryScan(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, partitions: _Optional[_Iterable[bytes]] = ...) -> None: ...

class FileScan(_message.Message):
    __slots__ = ("conf",)
    CONF_FIELD_NUMBER: _ClassVar[int]
    conf: ScanConf
    def __init__(self, conf: _Optional[_Union[ScanConf, _Mapping]] = ...) -> None: ...

class ScanConf(_message.Message):
    __slots__ = ("file_groups", "statistics", "object_store_url", "projection_exprs")
    FILE_GROUPS_FIELD_NUMBER: _ClassVar[int]
    STATISTICS_FIELD_NUMBER: _ClassVar[int]
    OBJECT_STORE_URL_FIELD_NUMBER: _ClassVar[int]
    PROJECTION_EXPRS_FIELD_NUMBER: _ClassVar[int]
    file_groups: _containers.RepeatedCompositeFieldContainer[FileGroup]
    statistics: Statistics
    object_store_url: str
    projection_exprs: ProjectionExprs
    def __init__(self, file_groups: _Optional[_Iterable[_Union[FileGroup, _Mapping]]] = ..., statistics: _Optional[_Union[Statistics, _Mapping]] = ..., object_store_url: _Optional[str] = ..., projection_exprs: _Optional[_Union[ProjectionExprs, _Mapping]] = ...) -> None: ...

class FileGroup(_message.Message):
    __slots__ = ("files",)
    FILES_FIELD_NUMBER: _ClassVar[int]
    files: _containers.RepeatedCompositeFieldContainer[File]
    def __init__(self, files: _Optional[_Iterable[_Union[File, _Mapping]]] = ...) -> None: ...

class File(_message.Message):
    __slots__ = ("path", "size", "modified_ns", "range")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_NS_FIELD_NUMBER: _ClassVar[int]
    RANGE_FIELD_NUMBER: _ClassVar[int]
    path: str
    size: int
    modified_ns: int
    range: FileRange
    def __init__(self, path: _Optional[str] = ..., size: _Optional[int] = ..., modified_ns: _Optional[int] = ..., range: _Optional[_Union[FileRange, _Mapping]] = ...) -> None: ...

class FileRange(_message.Message):
    __slots__ = ("start", "end")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class Statistics(_message.Message):
    __slots__ = ("columns",)
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    columns: _containers.RepeatedCompositeFieldContainer[ColumnStatistics]
    def __init__(self, columns: _Optional[_Iterable[_Union[ColumnStatistics, _Mapping]]] = ...) -> None: ...

class ColumnStatistics(_message.Message):
    __slots__ = ("bytes",)
    BYTES_FIELD_NUMBER: _ClassVar[int]
    bytes: Estimate
    def __init__(self, bytes: _Optional[_Union[Estimate, _Mapping]] = ...) -> None: ...

class Estimate(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: Scalar
    def __init__(self, value: _Optional[_Union[Scalar, _Mapping]] = ...) -> None: ...

class Scalar(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class ProjectionExprs(_message.Message):
    __slots__ = ("exprs",)
    EXPRS_FIELD_NUMBER: _ClassVar[int]
    exprs: _containers.RepeatedCompositeFieldContainer[ProjectionExpr]
    def __init__(self, exprs: _Optional[_Iterable[_Union[ProjectionExpr, _Mapping]]] = ...) -> None: ...

class ProjectionExpr(_message.Message):
    __slots__ = ("alias", "expr")
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    EXPR_FIELD_NUMBER: _ClassVar[int]
    alias: str
    expr: Expr
    def __init__(self, alias: _Optional[str] = ..., expr: _Optional[_Union[Expr, _Mapping]] = ...) -> None: ...

class Expr(_message.Message):
    __slots__ = ("column",)
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    column: Column
    def __init__(self, column: _Optional[_Union[Column, _Mapping]] = ...) -> None: ...

class Column(_message.Message):
    __slots__ = ("name", "index")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    name: str
    index: int
    def __init__(self, name: _Optional[str] = ..., index: _Optional[int] = ...) -> None: ...

class LogicalNode(_message.Message):
    __slots__ = ("listing",)
    LISTING_FIELD_NUMBER: _ClassVar[int]
    listing: ListingScan
    def __init__(self, listing: _Optional[_Union[ListingScan, _Mapping]] = ...) -> None: ...

class ListingScan(_message.Message):
    __slots__ = ("paths",)
    PATHS_FIELD_NUMBER: _ClassVar[int]
    paths: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, paths: _Optional[_Iterable[str]] = ...) -> None: ...
