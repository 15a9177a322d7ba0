"""Invalid options, and valid ones."""

from __future__ import annotations

import pytest

from pgm.spark.errors import BadOption
from pgm.spark.option_table import READ, WRITE
from pgm.spark.options import EARLIEST, read_options

HERE = "grpc://127.0.0.1:3057"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"startingOffset": "1"}, "no option 'startingoffset'.*startingOffsets is meant"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger.*no whole number above 0"),
        ({"startingOffsets": "{1}"}, "neither earliest nor latest nor JSON"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be earliest"),
        ({"startingOffsets": "latest", "startingTimestamp": "1"}, "both given"),
        ({"columns": "sqn,val"}, "no column 'val'"),
        ({"failOnDataLoss": "maybe"}, "neither true nor false"),
        ({"retrySeconds": "10s"}, 'retrySeconds = "10s": the value is no number of seconds'),
        ({"retrySeconds": "nan"}, "no number of seconds"),
        ({"writerId": "x"}, "no option 'writerid'"),
        ({"tokenFile": "/nowhere"}, "No such file"),
        ({"recorders": "http://x"}, "no address of a range service"),
        ({"keys": "desk.key"}, "option keys needs signatures, .* or mutualTls"),
        ({"mutualTls": "tree.toml"}, "mutualTls needs keys"),
        ({"serviceNodes": "recorder"}, "serviceNodes needs mutualTls"),
        ({"mutualTls": "tree.toml", "keys": "desk.key"}, f"for services with grpc.tls://, and {HERE} has not"),
        ({"recorders": "grpc+tls://a:1", "mutualTls": "/nowhere", "keys": "x"}, 'option mutualTls = "/nowhere": '),
    ],
)
def test_options_that_cannot_be_meant(options: dict[str, str], says: str) -> None:
    with pytest.raises(BadOption, match=f"(?s){says}") as told:
        read_options({"recorders": HERE, **options}, READ)
    assert str(told.value).startswith("PGM-SPARK-OPTION: ")
    assert told.value.remedy


def test_keys_in_any_case_and_groups_of_services() -> None:
    found = read_options({"RECORDERS": f"{HERE}|grpc+tls://b:1, grpc://c:2/", "endingoffsets": '{"x": -1}'}, READ)
    assert found.groups == ((HERE, "grpc+tls://b:1"), ("grpc://c:2",))
    assert (found.starting, found.ending) == (EARLIEST, {"x": -1})


def test_options_missing_and_read_only_options_are_refused() -> None:
    with pytest.raises(BadOption, match="recorders is missing"):
        read_options({}, READ)
    with pytest.raises(BadOption, match=r"a write with format .* no option 'subjects'"):
        read_options({"path": HERE, "subjects": "x"}, WRITE)
    assert read_options({"path": HERE, "checkpointLocation": "x"}, WRITE).locations == (HERE,)
