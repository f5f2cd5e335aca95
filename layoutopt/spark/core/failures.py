"""Translate errors of Spark, in whichever process they occurred, into one clear sentence."""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Final

from layoutopt.catalog.storage.store_errors import refused_file
from layoutopt.errors import (
    BoundError,
    LayoutoptError,
    SchemaError,
    SettingError,
    SourceError,
    StoreError,
    TableError,
    WorkerLostError,
    decode_error,
)
from layoutopt.external.whole_files import damaged_page, is_checksum_failure
from layoutopt.model.types import split_parts

# The beginning of the message of a worker that lacks layoutopt or a library.
MISSING_PACKAGE: Final = "Spark's workers run a Python without"
INSTALL_THERE: Final = "install it there, or name one that has it by PYSPARK_PYTHON"

# What surrounds the sentence of Spark's messages: the class of the error, its code and place, the Java stack trace.
_CLASS: Final = re.compile(r"^(?:.*?Exception: )?\[[A-Z][A-Z0-9_.]*\] ", re.DOTALL)
_AFTER: Final = re.compile(
    r"\s*(?:SQLSTATE: \w+|\n==|\n\s+at |;\n'?\w|\s+at (?=[a-z]+\.)|Driver stacktrace).*", re.DOTALL
)
# Advice about settings that would change what a table's conditions mean.
_ADVICE: Final = re.compile(r"(?:Use `try_\w+`|If necessary set|To return NULL instead).*", re.DOTALL)

_FILE = re.compile(r"(?:file:(?://)?)?([^\s'\"]*/[^\s'\"]+?\.parquet)\b")
_FILE_READ = re.compile(r"while reading file (?:file:(?://)?)?(\S+?)\.\s")
_UNREAD_FILE = re.compile(r"FAILED_READ_FILE|CANNOT_READ_FILE_FOOTER|Could not read footer")
_BROKEN_FILE = re.compile(
    r"is not a Parquet file|expected magic number|InvalidProtocolBufferException|hadoop\.fs\.ChecksumException"
    r"|Malformed ORC file|Buffer size too small|FileFormatException|EOFException"
    r"|can not read class org\.apache\.parquet"
)
# What Java's stores raise where they, the network or a disk refuse a file; s3a adds the HTTP status.
_REFUSED = re.compile(
    r"Permission denied|(?:AccessDenied|AccessControl|AWS\w*|AmazonS3|S3|SdkClient|SocketTimeout|ConnectTimeout"
    r"|UnknownHost)Exception\b|\bConnectException\b|Status Code: (?!404|416)\d{3}"
)
_STATUS = re.compile(r"Status Code: (\d{3})")
_STORE_CODE = re.compile(r"(?:Error Code:|\d{3}:) *(\w+)")
_CAUSE = re.compile(r"^Caused by: (?:[\w$]+\.)*([\w$]+)(?:: (.*))?$", re.MULTILINE)
_PLACE = re.compile(r"\b(?:s3a?|gs|abfss?|hdfs)://[^\s'\",;:]+")
_UNMERGEABLE = re.compile(r"CANNOT_MERGE_SCHEMAS|Failed to merge")
_STRUCT = re.compile(r'^"STRUCT<(.*)>"', re.MULTILINE)
_OTHER_TYPE = re.compile(r"Parquet column \[(.*?)\]\. Expected Spark type (.*?), actual Parquet type (\w+)")
_ONE_NAME = re.compile(r"COLUMN_ALREADY_EXISTS")
_UNREAD_TYPE = re.compile(r"UNSUPPORTED_TIME_TYPE|PARQUET_TYPE_(?:ILLEGAL|NOT_RECOGNIZED|NOT_SUPPORTED)|uniontype<")
_NO_COLUMNS = re.compile(r"UNABLE_TO_INFER_SCHEMA")
_MISSING = re.compile(r"PATH_NOT_FOUND|FAILED_READ_FILE\.FILE_NOT_EXIST|FileNotFoundException")
_NO_CONNECTOR = re.compile(r'No FileSystem for scheme:? "?(\w+)')
_NO_SPACE = re.compile(r"No space left on device")
_WORKER_LOST = re.compile(
    r"Python worker exited unexpectedly|SocketException: Connection reset(?=.*PythonRunner)", re.DOTALL
)
_OTHER_PYTHON = re.compile(r"Python in worker has different version: ([\d.]+) than that in driver: ([\d.]+)")
_NO_PYTHON = re.compile(r'Cannot run program "([^"]+)"')
# Where PySpark's own part of a worker lacks it.
_NO_PACKAGE = re.compile(r"No module named '(\w+)|\[PACKAGE_NOT_INSTALLED\] (\w+)")
_NO_MEMORY = re.compile(r"OutOfMemoryError|Java heap space|MemoryError|GC overhead limit")
_CODEC = re.compile(r"Class \S*?(\w+)Codec was not found")
_NANOSECONDS = re.compile(r"TIMESTAMP\(NANOS|nanosecond", re.IGNORECASE)


def plain_message(error: Exception) -> str:
    """Return the sentence of Spark's message, without classes, codes and stack traces.

    >>> plain_message(ValueError("[PARSE_SYNTAX_ERROR] Syntax error at 'x'. SQLSTATE: 42601 (line 1, pos 3)"))
    "Syntax error at 'x'"
    """
    text = _AFTER.sub("", _CLASS.sub("", str(error).strip()))
    return " ".join(_ADVICE.sub("", text).split()).rstrip(". ")


@contextmanager
def translate_spark_errors(source: str) -> Iterator[None]:
    """Raise Spark's errors as LayoutoptError; unrecognised errors pass unchanged. ``source`` names what is read.

    Raises:
        SourceError: a file of the source is missing, truncated or of another format; names it.
        StoreError: a store, disk or network refused a file.
        SchemaError: the source has a type that Spark refuses.
        BoundError: memory ran out.
        SettingError: Spark's workers have no Python, one of another version, or one without layoutopt or a library.
        WorkerLostError: a Python worker was killed.
        TableError: the disk is full.
    """
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise _disk_full() from error
    except Exception as error:
        translated = translate_message(str(error), source) if _is_of_spark(error) else None
        if translated is None:
            raise
        raise translated from error


def _is_of_spark(error: Exception) -> bool:
    if "pyspark" not in sys.modules:  # it takes a second to import, and work without Spark does not need it
        return False
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException | Py4JJavaError)


def translate_message(text: str, source: str) -> LayoutoptError | None:
    """Return the error that a message of Spark stands for; None if it is not recognised."""
    original = decode_error(text)
    if original is not None:
        return original
    if MISSING_PACKAGE in text:
        return SettingError(text[text.index(MISSING_PACKAGE) :].splitlines()[0])
    return _translate_worker_error(text) or _translate_schema_error(text, source) or _translate_file_error(text, source)


def _translate_worker_error(text: str) -> LayoutoptError | None:
    python, versions, package = _NO_PYTHON.search(text), _OTHER_PYTHON.search(text), _NO_PACKAGE.search(text)
    if python is not None:
        return SettingError(
            f"Spark's workers have no Python {python[1]!r}; install it there, or name another by PYSPARK_PYTHON"
        )
    if versions is not None:
        return SettingError(
            f"Spark's workers run Python {versions[1]} and the driver {versions[2]}; name one of that version by "
            "PYSPARK_PYTHON"
        )
    if package is not None:
        return SettingError(f"{MISSING_PACKAGE} {(package[1] or package[2]).lower()}; {INSTALL_THERE}")
    if _NO_SPACE.search(text):
        return _disk_full()
    if _NO_MEMORY.search(text):
        return BoundError("memory ran out while a segment was written; lower segment_rows or give Spark more memory")
    if _WORKER_LOST.search(text):
        return WorkerLostError(
            "a Python worker of Spark ended before its work was done, as where the system kills one for want of "
            "memory; run again, and if that recurs lower segment_rows or give Spark more memory"
        )
    return None


def _translate_schema_error(text: str, source: str) -> LayoutoptError | None:
    if _NANOSECONDS.search(text):
        return SchemaError(f"{source} has timestamps in nanoseconds, which Spark can't read; store microseconds")
    if _UNMERGEABLE.search(text):
        return SchemaError(f"the files of {source} have {_describe_difference(text)}; write them again with one type")
    if _ONE_NAME.search(text):
        return SchemaError(f"{source} has two columns that are one to Spark: names differ in case; rename one")
    if _UNREAD_TYPE.search(text):
        return SchemaError(f"{source} has a column of a type that Spark does not read; cast it or leave it out")
    if _NO_COLUMNS.search(text):
        return SourceError(
            f"the source {source} has no file with columns; check the path, or wait until its rows have come"
        )
    return None


def _find_file(text: str) -> str | None:
    match = _FILE_READ.search(text) or _FILE.search(text)
    return match[1] if match else None


def _find_cause(text: str) -> str:
    """Return the innermost cause that Java names, with its class; else the sentence of the message."""
    causes = _CAUSE.findall(text)
    kind, message = causes[-1] if causes else ("", "")
    return f"{kind}: {message}".removesuffix(": ") if kind else plain_message(ValueError(text))


def _translate_refusal(text: str, source: str) -> StoreError:
    place, status, code = _PLACE.search(text), _STATUS.search(text), _STORE_CODE.search(text)
    file = _find_file(text) or (place[0] if place else source)
    cause = next((cause for cause in map(": ".join, _CAUSE.findall(text)) if _REFUSED.search(cause)), _find_cause(text))
    return refused_file(file, cause, int(status[1]) if status else None, code[1] if code else None)


def _translate_file_error(text: str, source: str) -> LayoutoptError | None:
    connector = _NO_CONNECTOR.search(text)
    if connector is not None:
        return SettingError(
            f"Spark has no connector for {connector[1]}://, and only Spark can read the source {source}; add the "
            "connector's jar, or copy the files to where Spark reads"
        )
    if _REFUSED.search(text):
        return _translate_refusal(text, source)
    if _MISSING.search(text):
        return SourceError(
            f"the source {source} does not exist or lost a file; check the path, and that Spark's workers see it too"
        )
    file = _find_file(text) or source
    mismatch = _OTHER_TYPE.search(text)
    if mismatch is not None:
        return SchemaError(
            f"the file {file} has the column {mismatch[1]!r} as {mismatch[3]} where others have "
            f"{mismatch[2]}; write them again with one type"
        )
    if is_checksum_failure(text):
        return damaged_page(file)
    codec = _CODEC.search(text)
    if codec is not None:
        return SourceError(
            f"the file {file} is compressed by {codec[1]}, which Spark can't read without its library; add that, give "
            "--executor local, or write the file by another codec"
        )
    if _BROKEN_FILE.search(text):
        return broken_file(file)
    if _UNREAD_FILE.search(text):
        return SourceError(
            f"Spark can't read the file {file} ({_find_cause(text)[:_MOST_CAUSE]}); give --executor local if other "
            "programs read it, or write it again by another program"
        )
    return None


# Letters of a cause in a message.
_MOST_CAUSE: Final = 200


def broken_file(file: str) -> SourceError:
    """Return the error for a file that can't be read in its format."""
    return SourceError(f"the file {file} is truncated, damaged or of another format; write it again, or move it")


def _describe_difference(text: str) -> str:
    """Describe the column whose types differ between the schemas in Spark's message."""
    schemas = [
        dict(part.strip().partition(": ")[::2] for part in split_parts(match[1])) for match in _STRUCT.finditer(text)
    ]
    for first, second in pairwise(schemas):
        for name, type in first.items():
            if second.get(name, type) != type:
                return f"the column {name} as {type} and as {second[name]}"
    return "a column in different types"


def _disk_full() -> TableError:
    return TableError("the disk is full, nothing was committed; make room and load again")
