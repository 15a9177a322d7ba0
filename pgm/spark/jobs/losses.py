"""Losses by link: the losing link, the loss rate, the length of bursts.

A link is one direction of one node's place on a segment. A packet that a node lacks was usually lost on the link from
the segment to that node. If no node of the segment got the packet, the link from the segment's feeder to the segment
lost it. The feeder is the relay or source that sends the data there.

That decision needs the events of all nodes of a segment. It needs at least four nodes, since a few neighbours lose the
same packet by chance. A relay sends recovered packets down as ODATA. The losses of its own link are therefore late
below it, and lost nowhere below. Packets that the relay gave up are counted further up, where they were lost.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  # the usual name

from pgm.figures.rules import LAGS, MIN_LISTENERS, NEIGHBOURS, OWN_LOSSES
from pgm.spark.jobs.events import by_sqn, of_kind


def nodes(events: DataFrame) -> DataFrame:
    """Return the nodes of each segment. Columns: segment, node, role, address, side (up, down or both)."""
    places = of_kind(events, "address").select("segment", "node", "role", F.col("peer").alias("address"), "cause")
    return places.withColumnRenamed("cause", "side").distinct()


def feeders(events: DataFrame) -> DataFrame:
    """Return the sender of the data on each segment: segment, feeder, sent (packets)."""
    sent = of_kind(events, "sent").groupBy("segment", F.col("node").alias("feeder")).agg(F.sum("count").alias("sent"))
    ranking = Window.partitionBy("segment").orderBy(F.desc("sent"), "feeder")
    return sent.withColumn("rank", F.row_number().over(ranking)).where("rank = 1").drop("rank")


def heard(events: DataFrame) -> DataFrame:
    """Return the data received by each node: segment, node, received (packets)."""
    return of_kind(events, "received").groupBy("segment", "node").agg(F.sum("count").alias("received"))


def lost_sqns(events: DataFrame) -> DataFrame:
    """Return a row for each packet that a node lacked until a repair, or for good.

    Columns: segment, node, tsi, sqn, era, time. A packet that still arrived as ODATA was late, not lost. A repair for
    other nodes that arrives before any later packet was never missed, so it is in neither column. Receivers report
    losses to the application; other nodes only give up.
    """
    ended = of_kind(events, "repaired", "gave_up", "lost")
    is_end = ((F.col("kind") == "lost") == (F.col("role") == "receiver")) & ~F.col("cause").isin(*OWN_LOSSES)
    ended = ended.where((F.col("kind") == "repaired") | is_end)
    return by_sqn(ended.select("segment", "node", "tsi", "first", "count", "time"))


def attributed(events: DataFrame) -> DataFrame:
    """Return `lost_sqns`, each sqn once, with the `link` that lost the packet.

    A link is "floor-2 > desk-7", or "relay > floor-2" if no node of the segment got the packet.
    """
    listeners = heard(events).groupBy("segment").agg(F.count("node").alias("listeners"))
    places = listeners.join(feeders(events).drop("sent"), "segment", "left")
    given_up = by_sqn(of_kind(events, "gave_up").where("role != 'receiver'"))
    above = given_up.select(F.col("node").alias("feeder"), "tsi", "sqn", "era")
    # One number identifies a packet on a segment: sorting by text takes several times as long.
    same_packet = Window.partitionBy("packet")
    joined = (
        lost_sqns(events)
        .join(F.broadcast(places), "segment", "left")
        .join(F.broadcast(above), ["feeder", "tsi", "sqn", "era"], "left_anti")
        .withColumn("packet", F.xxhash64("segment", "tsi", "sqn", "era"))
        .withColumns({"lacking": F.count("node").over(same_packet), "one": F.min("node").over(same_packet)})
    )
    by_feeder = (
        (F.col("lacking") >= F.col("listeners")) & (F.col("listeners") >= MIN_LISTENERS) & F.col("feeder").isNotNull()
    )
    by_feeder = F.coalesce(by_feeder, F.lit(False))
    own = F.concat_ws(" > ", "segment", "node")
    link = F.when(by_feeder, F.concat_ws(" > ", "feeder", "segment")).otherwise(own).alias("link")
    node = F.when(by_feeder, F.lit(None)).otherwise(F.col("node")).alias("node")
    unique = joined.where(~by_feeder | (F.col("node") == F.col("one")))
    return unique.select(link, "segment", node, "tsi", "sqn", "era", "time")


def runs(lost: DataFrame) -> DataFrame:
    """Return the bursts of `attributed`: link, stream (a number for link, session and era), first, length."""
    in_order = Window.partitionBy("stream").orderBy("sqn")
    keyed = lost.select("link", F.xxhash64("link", "tsi", "era").alias("stream"), "sqn")
    islands = keyed.withColumn("island", F.col("sqn") - F.row_number().over(in_order))
    return (
        islands.groupBy("stream", "link", "island")  # group by link as well, since the first() of a text needs a sort
        .agg(F.min("sqn").alias("first"), F.count("sqn").alias("length"))
        .drop("island")
    )


def pairs(bursts: DataFrame, *keys: str) -> DataFrame:
    """Return the counts that tell bursts of `runs` from chance.

    Columns: link, lost, bursts, pairs_K. pairs_K is the number of lost packets whose Kth successor is lost too. More
    `keys`, such as the length of the bursts, give a row for each of their values.

    The counts come from runs. A run of length n has n - K such pairs. A run and a later neighbour have as many as they
    overlap when one is shifted by K.
    """
    in_order = Window.partitionBy("stream").orderBy("first")
    following = {
        f"{name}_{step}": F.lead(name, step).over(in_order)
        for step in range(1, NEIGHBOURS + 1)
        for name in ("first", "length")
    }
    table = bursts.withColumns(following)
    sums = [F.sum("length").alias("lost"), F.count("first").alias("bursts")]
    for lag in LAGS:
        pair_count = F.greatest(F.col("length") - lag, F.lit(0))
        for step in range(1, NEIGHBOURS + 1):
            low = F.greatest(F.col("first") + lag, F.col(f"first_{step}"))
            high = F.least(F.col("first") + F.col("length") + lag, F.col(f"first_{step}") + F.col(f"length_{step}"))
            # greatest() and least() ignore nulls, which stand for a missing next run.
            overlap = F.when(F.col(f"first_{step}").isNotNull(), F.greatest(high - low, F.lit(0)))
            pair_count = pair_count + F.coalesce(overlap, F.lit(0))
        sums.append(F.sum(pair_count).alias(f"pairs_{lag}"))
    return table.groupBy("link", *keys).agg(*sums)


def links(events: DataFrame, counted: DataFrame | None = None) -> DataFrame:
    """Return every link that carried data.

    Columns: link, segment, node, packets, lost, loss (a share), bursts, pairs_K. `node` is null for the link of a
    feeder. `packets` are data packets, first transmissions only. `counted` is a result of `pairs` for these events,
    with any keys, if one exists already.
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
    joined = into.unionByName(out).join(counted, "link", "left").na.fill(0)
    is_out = F.col("node").isNull()
    packets = F.when(is_out, F.col("arrived")).otherwise(F.col("arrived") + F.col("lost"))
    table = joined.withColumn("packets", packets).withColumn("loss", F.col("lost") / F.col("packets"))
    columns = ["link", "segment", "node", "packets", "lost", "loss", "bursts"]
    return table.select(*columns, *(f"pairs_{lag}" for lag in LAGS)).orderBy("link")
