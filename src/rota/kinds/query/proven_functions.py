"""The functions of the engine that are known to survive being encoded, by the names that plans have for them."""

SCALARS = frozenset(
    """
    abs acos acosh array_add array_any_value array_append array_avg array_compact array_concat array_dims
    array_distance array_distinct array_element array_except array_has array_has_all array_has_any
    array_intersect array_length array_max array_min array_ndims array_normalize array_pop_back array_pop_front
    array_position array_positions array_prepend array_product array_remove array_remove_all array_remove_n
    array_repeat array_replace array_replace_all array_replace_n array_resize array_reverse array_scale
    array_slice array_sort array_subtract array_sum array_to_string array_union arrays_zip arrow_field
    arrow_metadata arrow_typeof ascii asin asinh atan atan2 atanh bit_length btrim cardinality cbrt ceil
    character_length chr concat concat_ws contains cos cosh cosine_distance cot date_bin date_part date_trunc
    decode degrees digest empty encode ends_with exp factorial find_in_set flatten floor from_unixtime gcd
    generate_series get_field greatest initcap inner_product isnan iszero lcm least left levenshtein ln log
    log10 log2 lower lpad ltrim make_array make_date make_time map map_entries map_extract map_keys map_values
    md5 named_struct nanvl nullif octet_length overlay power radians random range regexp_count regexp_instr
    regexp_match regexp_replace repeat replace reverse right round rpad rtrim sha224 sha256 sha384 sha512 signum
    sin sinh split_part sqrt starts_with string_to_array strpos struct substr substr_index tan tanh to_char
    to_date to_hex to_local_time to_time to_timestamp to_timestamp_micros to_timestamp_millis to_timestamp_nanos
    to_timestamp_seconds to_unixtime translate trunc upper uuid with_metadata
    """.split()  # noqa: SIM905 - a list of words
)

AGGREGATES = frozenset(
    """
    any_value approx_distinct approx_median approx_percentile_cont array_agg avg bit_and bit_or bit_xor bool_and
    bool_or corr count covar_pop covar_samp first_value last_value max median min nth_value percentile_cont
    regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy stddev
    stddev_pop string_agg sum var var_pop
    """.split()  # noqa: SIM905 - a list of words
)

WINDOWS = frozenset(
    """
    cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number
    """.split()  # noqa: SIM905 - a list of words
)
