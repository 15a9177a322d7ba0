"""Where packets were lost: which link lost them, how often, in bursts of what length.

A link is one direction of one node's place on a segment. A packet that a node lacks was lost on the link from the segment to
that node, unless nobody on the segment got it: then it was lost between the segment's feeder (the relay or source that
sends the data there) and the segment. That takes the events of all nodes of a segment; of four at least, since a few
neighbours lose the same packet by chance. A relay sends what it had to recover down as ODATA, so the losses of its own
link are late below it and lost nowhere; what it gave up is counted where it was lost, further up.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from pgm.spark.jobs.events import by_sqn, of_kind

_FEWEST_TO_BLAME_THE_FEEDER = 4
LAGS = (1, 2, 4, 8)  # packets; the distances at which losses are compared, to tell bursts from chance
_NEIGHBOURS = max(LAGS) // 2  # runs that can lie within that distance: a loss and a packet that came, each


def nodes(events: DataFrame) -> DataFrame:
    """Who is on which segment: segment, node, role, address, side (up, down or both)."""
    seats = of_kind(events, "address").select("segment", "node", "role", F.col("peer").alias("address"), "cause")
    return seats.withColumnRenamed("cause", "side").distinct()


def feeders(events: DataFrame) -> DataFrame:
    """Who sends the data on each segment: segment, feeder, sent (packets)."""
    sent = of_kind(events, "sent").groupBy("segment", F.col("node").alias("feeder")).agg(F.sum("count").alias("sent"))
    most = Window.partitionBy("segment").orderBy(F.desc("sent"), "feeder")
    return sent.withColumn("rank", F.row_number().over(most)).where("rank = 1").drop("rank")


def heard(events: DataFrame) -> DataFrame:
    """How much data each node got where it listens: segment, node, received (packets)."""
    return of_kind(events, "received").groupBy("segment", "node").agg(F.sum("count").alias("received"))


def lost_sqns(events: DataFrame) -> DataFrame:
    """A row for each packet that a node lacked until a repair, or for good: segment, node, tsi, sqn, era, time.

    What came as ODATA after all was late, not lost. A repair that others asked for and that comes before anything later was
    never missed, so it is in neither column. Receivers tell the application what is lost, others only give it up.
    """
    ended = of_kind(events, "repaired", "gave_up", "lost").where(
        "kind = 'repaired' OR (kind = 'lost') = (role = 'receiver') AND cause NOT IN ('malformed', 'fragment')"
    )
    return by_sqn(ended.select("segment", "node", "tsi", "first", "count", "time"))


def attributed(events: DataFrame) -> DataFrame:
    """`lost_sqns`, each once, with the `link` that lost it: "floor-2 > desk-7", or "relay > floor-2" for what nobody there got."""
    listeners = heard(events).groupBy("segment").agg(F.count("node").alias("listeners"))
    places = listeners.join(feeders(events).drop("sent"), "segment", "left")
    given_up = by_sqn(of_kind(events, "gave_up").where("role != 'receiver'"))
    above = given_up.select(F.col("node").alias("feeder"), "tsi", "sqn", "era")
    # One number for all that says which packet it is on which segment: sorting by text takes several times as long.
    same = Window.partitionBy("packet")
    known = (
        lost_sqns(events)
        .join(F.broadcast(places), "segment", "left")
        .join(F.broadcast(above), ["feeder", "tsi", "sqn", "era"], "left_anti")
        .withColumn("packet", F.xxhash64("segment", "tsi", "sqn", "era"))
        .withColumns({"lacking": F.count("node").over(same), "one": F.min("node").over(same)})
    )
    by_feeder = (
        (F.col("lacking") >= F.col("listeners"))
        & (F.col("listeners") >= _FEWEST_TO_BLAME_THE_FEEDER)
        & F.col("feeder").isNotNull()
    )
    by_feeder = F.coalesce(by_feeder, F.lit(False))
    own = F.concat_ws(" > ", "segment", "node")
    link = F.when(by_feeder, F.concat_ws(" > ", "feeder", "segment")).otherwise(own).alias("link")
    node = F.when(by_feeder, F.lit(None)).otherwise(F.col("node")).alias("node")
    once = known.where(~by_feeder | (F.col("node") == F.col("one")))
    return once.select(link, "segment", node, "tsi", "sqn", "era", "time")


def runs(lost: DataFrame) -> DataFrame:
    """The bursts of `attributed`: link, stream (a number for link, session and era), first, length."""
    in_order = Window.partitionBy("stream").orderBy("sqn")
    keyed = lost.select("link", F.xxhash64("link", "tsi", "era").alias("stream"), "sqn")
    islands = keyed.withColumn("island", F.col("sqn") - F.row_number().over(in_order))
    return (
        islands.groupBy("stream", "link", "island")  # the link too, and not its first(): text in a sum means sorting
        .agg(F.min("sqn").alias("first"), F.count("sqn").alias("length"))
        .drop("island")
    )


def pairs(bursts: DataFrame, *keys: str) -> DataFrame:
    """What tells bursts (`runs`) from chance: link, lost, bursts, and pairs_K, the lost packets whose Kth successor is lost too.

    With more `keys`, such as the length of the bursts, a row for each of those.
    Counted on runs: within one of length n there are n - K such pairs, and between a run and its next neighbours as
    many as they overlap when one is shifted by K.
    """
    in_order = Window.partitionBy("stream").orderBy("first")
    following = {
        f"{name}_{step}": F.lead(name, step).over(in_order)
        for step in range(1, _NEIGHBOURS + 1)
        for name in ("first", "length")
    }
    table = bursts.withColumns(following)
    sums = [F.sum("length").alias("lost"), F.count("first").alias("bursts")]
    for lag in LAGS:
        found = F.greatest(F.col("length") - lag, F.lit(0))
        for step in range(1, _NEIGHBOURS + 1):
            low = F.greatest(F.col("first") + lag, F.col(f"first_{step}"))
            high = F.least(F.col("first") + F.col("length") + lag, F.col(f"first_{step}") + F.col(f"length_{step}"))
            # greatest() and least() pass over nulls, which stand where no run follows.
            overlap = F.when(F.col(f"first_{step}").isNotNull(), F.greatest(high - low, F.lit(0)))
            found = found + F.coalesce(overlap, F.lit(0))
        sums.append(F.sum(found).alias(f"pairs_{lag}"))
    return table.groupBy("link", *keys).agg(*sums)


def links(events: DataFrame, counted: DataFrame | None = None) -> DataFrame:
    """Every link on which data came: link, segment, node, packets, lost, loss (a share), bursts, pairs_K.

    `node` is null for what a feeder sends. `packets` are data packets, first sendings only. `counted` is what `pairs`
    gave for these events, with whatever keys, if that is at hand.
    """
    if counted is None:
        counted = pairs(runs(attributed(events)))
    names = ["lost", "bursts", *(f"pairs_{lag}" for lag in LAGS)]
    counted = counted.groupBy("link").agg(*(F.sum(name).alias(name) for name in names))
    into = heard(events).select(
        F.concat_ws(" > ", "segment", "node").alias("link"), "segment", "node", F.col("received").alias("arrived")
    )
    out = feeders(events).select(
        F.concat_ws(" > ", "feeder", "segment").alias("link"),
        "segment",
        F.lit(None).cast("string").alias("node"),
        F.col("sent").alias("arrived"),
    )
    known = into.unionByName(out).join(counted, "link", "left").na.fill(0)
    is_out = F.col("node").isNull()
    packets = F.when(is_out, F.col("arrived")).otherwise(F.col("arrived") + F.col("lost"))
    table = known.withColumn("packets", packets).withColumn("loss", F.col("lost") / F.col("packets"))
    columns = ["link", "segment", "node", "packets", "lost", "loss", "bursts"]
    return table.select(*columns, *(f"pairs_{lag}" for lag in LAGS)).orderBy("link")
