"""Comments and function names of Spark's SQL, where sqlglot's lexer and parser differ.

sqlglot reads the functions of all its dialects in each of them: it treats ``day_of_week(d)`` as ``dayofweek(d)``. Spark
has no such function, so the name may belong to a user's function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_TOKEN: Final = re.compile(
    r"""(?<!\w)[rR](?:'[^']*'|"[^"]*")"""  # in raw strings a backslash is a character
    r"""|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`"""
    r"|(?P<line>--(?:\\\n|[^\r\n])*)"  # a backslash at its end makes the next line a part of it
    r"|(?P<block>/\*(?!\+))",
    re.DOTALL,
)
_BLOCK_DELIMITER: Final = re.compile(r"/\*(?!\+)|\*/")
_VISIBLE: Final = re.compile(r"[^\r\n]")


def without_comments(sql: str) -> str:
    r"""Return the text with comments replaced by blanks, so that positions are kept; hints are not comments.

    A comment that is never closed is kept: no parser accepts the text.

    >>> without_comments("SELECT '--', a /* b /* c */ d */ FROM t -- e \\\n WHERE f = 1")
    "SELECT '--', a                   FROM t       \n            "
    """
    if "--" not in sql and "/*" not in sql:
        return sql
    pieces, copied = [], 0
    for start, end in _find_comments(sql):
        pieces += [sql[copied:start], _VISIBLE.sub(" ", sql[start:end])]
        copied = end
    return "".join([*pieces, sql[copied:]])


def _find_comments(sql: str) -> Iterator[tuple[int, int]]:
    """Yield the comments, as [start, end)."""
    match = _TOKEN.search(sql)
    while match is not None:
        end = match.end()
        if match["block"]:
            block_end = _find_block_end(sql, end)
            if block_end is None:
                return
            end = block_end
        if match["block"] or match["line"]:
            yield match.start(), end
        match = _TOKEN.search(sql, end)


def _find_block_end(sql: str, start: int) -> int | None:
    """Return the end of a block comment whose content begins at ``start``; None if it is never closed."""
    depth = 1
    for match in _BLOCK_DELIMITER.finditer(sql, start):
        depth += -1 if match[0] == "*/" else 1
        if not depth:
            return match.end()
    return None


# Spark 4.3's functions that sqlglot knows by these names, or takes for types; a test compares them with Spark's.
SPARK_FUNCTIONS: Final = frozenset(
    """
    abs acos acosh add_months aggregate and any_value approx_count_distinct approx_percentile approx_top_k
    approx_top_k_accumulate approx_top_k_combine approx_top_k_estimate array array_agg array_append array_compact
    array_contains array_distinct array_except array_insert array_intersect array_join array_max array_min
    array_position array_prepend array_remove array_size array_sort arrays_zip ascii asin asinh atan atan2 atanh avg
    base64 bigint binary bit_and bit_count bit_get bit_length bit_or bit_xor bitmap_bit_position
    bitmap_bucket_number bitmap_construct_agg bitmap_count bitmap_or_agg bool_and bool_or boolean case cast cbrt
    ceil ceiling char char_length character_length chr coalesce collate collation collect_list collect_set concat
    concat_ws contains convert_timezone corr cos cosh cot count count_if covar_pop covar_samp csc cume_dist curdate
    current_catalog current_database current_date current_schema current_time current_timestamp current_timezone
    current_user date date_add date_diff date_format date_from_unix_date date_sub date_trunc dateadd datediff day
    dayname dayofmonth dayofweek dayofyear decimal decode degrees dense_rank div double element_at elt encode
    endswith equal_null exists exp explode explode_outer extract factorial filter first first_value flatten float
    floor format_string from_base32 from_json from_unixtime from_utc_timestamp get_json_object getbit greatest
    grouping grouping_id hex hour if ifnull ilike initcap inline instr int isnan json_object_keys kurtosis lag last
    last_day last_value lcase lead least left len length levenshtein like listagg ln localtime localtimestamp locate
    log log10 log2 lower lpad ltrim make_interval make_timestamp map map_contains_key map_from_arrays
    map_from_entries map_keys max max_by md5 median min min_by minute mod mode month monthname months_between
    named_struct nanvl negative next_day nth_value ntile nullif nvl nvl2 or overlay parse_json parse_url
    percent_rank percentile percentile_approx percentile_cont percentile_disc pi posexplode posexplode_outer
    position pow power quarter radians rand randn random randstr range rank reduce regexp_count regexp_extract
    regexp_extract_all regexp_instr regexp_like regexp_replace regexp_substr regr_avgx regr_avgy regr_count
    regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy repeat replace reverse right rint rlike round
    row_number rpad rtrim sec second sequence session_user sha sha1 sha2 shiftleft shiftright shuffle sign signum
    sin sinh size skewness slice smallint sort_array soundex space split split_part sqrt stack startswith stddev
    stddev_pop stddev_samp str_to_map string string_agg struct substr substring substring_index sum tan tanh time
    time_diff time_trunc timestamp tinyint to_base32 to_binary to_char to_date to_json to_number to_timestamp
    to_unix_timestamp to_utc_timestamp transform translate trim trunc try_add try_divide try_element_at try_multiply
    try_subtract typeof ucase unbase64 unhex uniform unix_date unix_micros unix_millis unix_seconds unix_timestamp
    upper uuid var_pop var_samp variance weekofyear width_bucket year
    """.split()  # noqa: SIM905 (a list of 300 lines is no clearer)
)

# Other words that may precede a bracket in Spark's SQL: special syntax, types, hints.
GRAMMAR_WORDS: Final = frozenset(
    """
    cast character dec numeric timestampadd timestampdiff try_cast union varchar
    broadcast broadcastjoin mapjoin merge mergejoin shuffle_hash shuffle_merge shuffle_replicate_nl shufflemerge
    """.split()  # noqa: SIM905
)


def is_spark_function(name: str) -> bool:
    """Return whether a name before a bracket that sqlglot knows means the same to Spark.

    >>> is_spark_function("DayOfWeek"), is_spark_function("day_of_week")
    (True, False)
    """
    return name.lower() in SPARK_FUNCTIONS or name.lower() in GRAMMAR_WORDS
