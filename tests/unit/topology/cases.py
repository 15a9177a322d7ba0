"""Ways to break every rule of `check`, with the text of the finding."""

from __future__ import annotations

from datetime import date

import attrs

from tests.unit.topology.trees import GOOD
from tests.unit.trust.keys import private_keys


@attrs.frozen
class Case:
    """Change that breaks a rule, a mark on the line of the finding, and the text of the finding."""

    rule: str
    changes: tuple[tuple[str, str], ...]
    mark: str
    says: tuple[str, ...]
    remedy: str


RELAY_TWO = """[nodes.second]
role = "aggregator"
upstream = { segment = "core", address = "10.0.0.40" }
downstream = [{ segment = "floor", address = "10.0.1.40" }]
parents = ["exchange"]
"""
STANDBY_TWO = RELAY_TWO.replace("[nodes.second]", '[nodes.second]\nstandby_of = "relay" # two')
BACKWARDS = """[nodes.back]
role = "aggregator"
upstream = { segment = "floor", address = "10.0.1.50" }
downstream = [{ segment = "core", address = "10.0.0.50" }] # back
parents = ["relay"]
"""
DESK = '[nodes."desk-*"]'
NODES = GOOD[GOOD.index("[nodes.exchange]") :]
ISLAND = '[segments.island]\ngroup = "239.192.0.9"\ninterface = "10.0.9.0/24"\n'


RELAYED = '{ segment = "floor", address = "10.0.1.'
RELAYED_TWICE = '{ segment = "island", address = "10.0.9.1" }, { segment = "floor", address = "10.0.1.'


KEYS_ONE = private_keys(1).public.line
KEYS_LATE = private_keys(2, date(2029, 1, 1), date(2030, 1, 1)).public.line
KEYS_AT = 'name = "good"\n'
SEALED = ("data_port = 7500", "data_port = 7500\nsigned = true\nsealed = true # yes")
KEYED = (KEYS_AT, f'name = "good"\nkeys.exchange = ["{KEYS_ONE}"]\nkeys.desk-1 = ["{private_keys(3).public.line}"]\n')


def case(rule: str, *changes: tuple[str, str], mark: str, says: tuple[str, ...], remedy: str) -> Case:
    return Case(rule, changes, mark, says, remedy)


# One case a line, so that the cases read as a table.
# fmt: off

CASES = [
    # Entries
    case("names", ("[segments.floor]", '[segments."fl oor"]'), mark='"fl oor"', says=("'fl oor'", "segments"), remedy="letters"),
    case("names", ('name = "good"', 'name = "go/od"'), mark='"go/od"', says=("'go/od'", "tree"), remedy="letters"),
    case("names", ("[nodes.standby]", '[nodes."stand by"]'), mark='"stand by"', says=("'stand by'",), remedy="letters"),
    case("nodes", (NODES, "[nodes]\n"), mark="[nodes]", says=("no nodes",), remedy="[nodes.NAME]"),
    case("pattern", ("desk-*", "desk-*-*"), mark="desk-*-*", says=("more than one *", "desk-*-*"), remedy="keep one *"),
    case("pattern", ("nodes.exchange", 'nodes."exchange-*"'), mark="exchange-*", says=("'exchange-*' is source",), remedy="an entry of its own"),
    case("pattern", ("addresses = ", 'address = "10.0.1.9"\naddresses = '), mark="10.0.1.9", says=("single address 10.0.1.9",), remedy='addresses = "10.0.1.9-..."'),
    case("pattern", ("desk-*", "desk"), mark="count = 4", says=("'desk' is no pattern", "count"), remedy="desk-*"),
    case("same-name", (DESK, f'[nodes.desk-3]\nrole = "receiver"\nsegment = "floor"\nparents = ["relay"]\n{DESK}'), mark="nodes.desk-3", says=("'desk-3'", "number 3", "'desk-*'"), remedy="count below 3"),
    case("record", ("[nodes.core-repairer]", '[nodes.core-repairer]\nrecord = { directory = "/a", serve = "nowhere" }'), mark='serve = "nowhere"', says=("'nowhere' of 'core-repairer' is no address",), remedy="HOST:PORT"),
    case("record", (DESK, f'{DESK}\nrecord = {{ directory = "/a" }}'), mark='directory = "/a"', says=("the 4 nodes of 'desk-*'", "'/a'"), remedy="--dir"),
    case("record", ("[nodes.core-repairer]", '[nodes.core-repairer]\nrecord = { directory = "/a/b/" } # two'), (DESK, f'[nodes.desk-9]\nrole = "receiver"\nsegment = "floor"\naddress = "10.0.1.99"\nparents = ["relay"]\nrecord = {{ directory = "/a/b" }} # three\n{DESK}'), mark="# three", says=("'desk-9' records into '/a/b', as 'core-repairer' does",), remedy="of its own"),
    case("shape", ('segment = "floor"\ncount', 'upstream = { segment = "floor", address = "10.0.1.9" }\ncount'), mark="desk-*", says=("receiver 'desk-*' has upstream",), remedy="write segment"),
    case("shape", ("repairers = [", 'segment = "core"\nrepairers = ['), mark="nodes.relay", says=("both segment = 'core' and upstream",), remedy="on-LAN"),
    case("shape", ('upstream = { segment = "core", address = "10.0.0.13" }\n', ""), mark="nodes.standby", says=("'standby' has no upstream",), remedy="upstream = {"),
    case("shape", ('segment = "core"\naddress = "10.0.0.11"\n', ""), mark="nodes.core-repairer", says=("'core-repairer' is on no segment",), remedy='write segment = "..."'),
    case("shape", ("repairers = [", 'address = "10.0.0.77"\nrepairers = ['), mark="10.0.0.77", says=("address = '10.0.0.77' without a segment",), remedy="upstream and in each downstream"),
    case("shape", ('downstream = [{ segment = "floor", address = "10.0.1.1" }]', 'downstream = [{ segment = "core", address = "10.0.0.77" }]'), mark="10.0.0.77", says=("'core' upstream and downstream",), remedy='segment = "core"'),
    case("shape", ('[{ segment = "floor", address = "10.0.1.1" }]', '[{ segment = "floor", address = "10.0.1.1" }, { segment = "floor", address = "10.0.1.9" }]'), mark="10.0.1.9", says=("'floor' downstream 2 times",), remedy="once"),
    case("role", ('streams = ["quotes"]\n[nodes.core', 'streams = ["quotes"]\nparents = ["relay"] # none\n[nodes.core'), mark="# none", says=("source 'exchange' has parents",), remedy="remove it"),
    case("role", ('parents = ["relay", "standby"]', 'parents = ["relay", "standby"]\nrepairers = ["core-repairer"]'), mark='repairers = ["core-repairer"]', says=("repairer 'floor-repairer' has repairers",), remedy="only aggregators read"),
    case("role", ("count = 4", "count = 4\ncache = { seconds = 5 }"), mark="cache = { seconds = 5", says=("receiver 'desk-*' has cache",), remedy="only repairers read"),
    case("role", ('streams = ["quotes"]\n[nodes.core', "[nodes.core"), mark="nodes.exchange", says=("source 'exchange' has no streams",), remedy='streams = ["quotes"]'),
    case("unknown-name", ('parents = ["exchange"]', 'parents = ["exchnge"]'), mark="exchnge", says=("'core-repairer' names the node 'exchnge'",), remedy="did you mean 'exchange'?"),
    case("unknown-name", ('repairers = ["floor-repairer"]', 'repairers = ["flor-repairer"]'), mark="flor-repairer", says=("'flor-repairer'",), remedy="did you mean 'floor-repairer'?"),
    case("unknown-name", ('standby_of = "relay"', 'standby_of = "rely"'), mark='"rely"', says=("'rely'",), remedy="did you mean 'relay'?"),
    case("unknown-name", ('segment = "core"\naddress = "10.0.0.11"', 'segment = "cor"\naddress = "10.0.0.11"'), mark='"cor"', says=("the segment 'cor'",), remedy="did you mean 'core'?"),
    case("unknown-name", ('[{ segment = "floor", address = "10.0.1.3" }]', '[{ segment = "flor", address = "10.0.1.3" }]'), mark='"flor"', says=("the segment 'flor'",), remedy="did you mean 'floor'?"),
    case("unknown-name", ('streams = ["quotes"]\nparents', 'streams = ["quots"]\nparents'), mark="quots", says=("the stream 'quots'",), remedy="did you mean 'quotes'?"),
    case("unknown-name", ('window = "10s"', 'segment = "corr"'), mark="corr", says=("the segment 'corr'",), remedy="did you mean 'core'?"),
    case("twice", ('parents = ["relay", "standby"]', 'parents = ["relay", "relay"]'), mark='"relay", "relay"', says=("'relay' 2 times in parents",), remedy="name it once"),
    case("data-port", ("[segments.core]", "[streams.trades]\ndata_port = 7500 # again\n[segments.core]"), mark="# again", says=("'quotes' and 'trades'", "7500"), remedy="another data_port"),
    case("disagreement", ("[segments.core]", '[streams.trades]\ndata_port = 7501\nparameters = { nak_bo_ivl = "20ms" }\n[streams.quotes.parameters]\nnak_bo_ivl = "10ms"\n[segments.core]'), mark="nodes.core-repairer", says=("nak_bo_ivl = 10ms from stream quotes and 20ms from stream trades",), remedy="set nak_bo_ivl in the parameters of 'core-repairer'"),
    case("unread", ("count = 4", 'count = 4\nparameters = { ambient_spm_ivl = "1s" }'), mark="parameters = {", says=("receiver 'desk-*' sets ambient_spm_ivl",), remedy="at a source"),
    case("former-name", ("count = 4", 'count = 4\nparameters = { rx_look_ivl = "1ms" }'), mark="parameters = {", says=("rx_look_ivl is the former name of rx_poll_ivl",), remedy="write rx_poll_ivl"),
    case("unread", ("[nodes.core-repairer]", 'parameters = { rx_bulk_ivl = "1ms" }\n[nodes.core-repairer]'), mark="parameters = {", says=("source 'exchange' sets rx_bulk_ivl",), remedy="at a receiver or aggregator or repairer"),
    # The tree
    case("parent-loop", ('parents = ["relay", "standby"]', 'parents = ["relay", "floor-repairer"]'), mark='parents = ["relay", "floor-repairer"]', says=("floor-repairer asks floor-repairer",), remedy="remove 'floor-repairer'"),
    case("parent-loop", ('parents = ["exchange"]', 'parents = ["second"]'), ("[nodes.relay]", '[nodes.second]\nrole = "repairer"\nsegment = "core"\naddress = "10.0.0.30"\nparents = ["core-repairer"]\n[nodes.relay]'), mark='parents = ["second"]', says=("asks second asks",), remedy="remove"),
    case("segment-loop", (DESK, BACKWARDS + DESK), mark="# back", says=("core -> floor -> core", "back"), remedy="other downstream segments"),
    case("parent-segment", ('parents = ["relay", "standby"]', 'parents = ["core-repairer"]'), mark='parents = ["core-repairer"]', says=("a parent must sit on the node's upstream segment", "'floor-repairer' asks on floor", "'core-repairer' answers on core"), remedy="on floor there are relay, standby"),
    case("parent-segment", ('parents = ["relay", "standby"]', 'parents = ["desk-*"]'), mark='parents = ["desk-*"]', says=("the receiver 'desk-*' as a parent",), remedy="name a repairer"),
    case("repairer-segment", ('repairers = ["floor-repairer"]', 'repairers = ["core-repairer"]'), mark='repairers = ["core-repairer"]', says=("'core-repairer' answers on core, not on a downstream segment of 'relay' (floor)",), remedy="name it in parents"),
    case("repairer-segment", ('repairers = ["floor-repairer"]', 'repairers = ["standby"]'), mark='repairers = ["standby"]', says=("the aggregator 'standby' among its repairers",), remedy="role repairer"),
    case("one-speaker", (DESK, RELAY_TWO + DESK), mark="10.0.1.40", says=("'relay' and 'second' are both active on floor",), remedy='standby_of = "relay"'),
    case("standby", ('standby_of = "relay"', 'standby_of = "standby"'), mark='standby_of = "standby"', says=("'standby' is a standby of 'standby', which is itself",), remedy="the active relay"),
    case("standby", ('standby_of = "relay"', 'standby_of = "core-repairer"'), mark="standby_of", says=("'core-repairer', which is not a relay",), remedy="the active relay"),
    case("standby", ('address = "10.0.1.2"', 'address = "10.0.1.2"\nstandby_of = "relay" # no'), mark="# no", says=("'floor-repairer' is a standby of 'relay' and is not a relay",), remedy="upstream and downstream"),
    case("standby", ("[segments.core]", ISLAND + "[segments.core]"), ('"floor", address = "10.0.1.3"', '"island", address = "10.0.9.3"'), mark="standby_of", says=("core to island", "core to floor"), remedy="same segments"),
    case("standby", (DESK, STANDBY_TWO + DESK), mark='standby_of = "relay" # two', says=("'standby' and 'second' are both standbys of 'relay'",), remedy="one standby"),
    case("fed", ("[segments.core]", ISLAND + "[segments.core]"), ('segment = "floor"\ncount', 'segment = "island"\ncount'), mark="segments.island", says=("no stream arrives on island, where desk-* listens",), remedy="a relay with island downstream"),
    case("fed", ("[segments.core]", "[streams.trades]\ndata_port = 7501\n[segments.core]"), ('streams = ["quotes"]\nparents', 'streams = ["trades"]\nparents'), mark='streams = ["trades"]', says=("no source sends the stream 'trades'",), remedy='add "trades"'),
    case("fed", ("[segments.core]", "[streams.trades]\ndata_port = 7501\n[segments.core]"), ('streams = ["quotes"]\n[nodes.core', 'streams = ["quotes", "trades"]\n[nodes.core'), ("repairers = [", 'streams = ["quotes"]\nrepairers = ['), ('standby_of = "relay"', 'standby_of = "relay"\nstreams = ["quotes"]'), ('streams = ["quotes"]\nparents = ["relay"', 'streams = ["trades"]\nparents = ["relay"'), mark='streams = ["trades"]', says=("'trades' that 'desk-*' wants does not reach floor",), remedy="what arrives is quotes"),
    case("source-list", ('window = "10s"', 'window = "10s"\nsources = ["exchang"] # wrong'), mark="# wrong", says=("'exchang' of 'quotes' is neither a node nor an address",), remedy="did you mean 'exchange'"),
    case("source-list", ('window = "10s"', 'window = "10s"\nsources = ["exchange", "relay"] # wrong'), mark="# wrong", says=("'relay' is a source of 'quotes', but does not send it",), remedy="exchange"),
    case("unlisted-source", ('window = "10s"', 'window = "10s"\nsources = ["10.0.0.7"] # wrong'), mark="# wrong", says=("'exchange' sends 'quotes' and is not among its sources",), remedy="add 'exchange'"),
    case("stream-segment", ('window = "10s"', 'segment = "floor" # wrong'), mark="# wrong", says=("'quotes' belongs on floor", "'exchange' is on core"), remedy='segment = "core"'),
    case("no-parents", ('parents = ["exchange"]\n', ""), mark="nodes.core-repairer", says=("the repairer 'core-repairer' has no parents",), remedy='parents = ["exchange"]'),
    case("no-repairer", ('segment = "floor"\naddress = "10.0.1.2"\nparents = ["relay", "standby"]', 'segment = "core"\naddress = "10.0.0.20"\nparents = ["exchange"]'), ('repairers = ["floor-repairer"]\n', ""), (', "floor-repairer"]', "]"), ("count = 4", "count = 40"), ("10.0.1.10-10.0.1.19", "10.0.1.10-10.0.1.99"), mark="segments.floor", says=("floor has 40 receivers and no repairer",), remedy='role = "repairer" and segment = "floor"'),
    case("lone-repairer", ("[nodes.core-repairer]", '[nodes."far-*"]\nrole = "receiver"\nsegment = "core"\ncount = 8\nloss = { loss = "5%" }\nparents = ["core-repairer"]\n[nodes.core-repairer]'), ('[segments.core]', '[segments.core]\nloss = { loss = "5%" }'), mark="nodes.core-repairer", says=("'core-repairer' is the only repairer of core", "at 5% loss", "15% of the sqns"), remedy="add a second repairer on core"),
    case("offer", ("[nodes.floor-repairer]", '[nodes.carrier]\nrole = "repairer"\nupstream = { segment = "core", address = "10.0.0.60" }\ndownstream = [{ segment = "floor", address = "10.0.1.60" }]\nstandby_of = "relay"\nparents = ["exchange"]\nparameters = { dlr_mode = "both" }\n[nodes.floor-repairer]'), mark="dlr_mode", says=("the relay 'carrier' offers itself as a repairer (both)",), remedy="one segment"),
    # Lines
    case("line-seat", ('parents = ["relay", "standby", "floor-repairer"]', 'parents = ["relay", "standby", "floor-repairer"]\nlines = [{ segment = "floor", addresses = "10.0.1.30-10.0.1.39" }] # line'), mark="# line", says=("'desk-*' has the segment 'floor' twice",), remedy="another segment"),
    case("line-seat", ('repairers = ["floor-repairer"]', 'repairers = ["floor-repairer"]\nlines = [{ segment = "core", address = "10.0.0.77" }] # line'), mark="# line", says=("the aggregator 'relay' has lines, but keeps no data",), remedy="make 'relay' a repairer"),
    case("line-address", ("[segments.core]", ISLAND + "[segments.core]"), (RELAYED, RELAYED_TWICE), ("count = 4", 'count = 4\nlines = [{ segment = "island", address = "10.0.9.9" }] # line'), mark="# line", says=("the single address 10.0.9.9 on island",), remedy='addresses = "10.0.9.9-..."'),
    case("line-address", ("[segments.core]", ISLAND + "[segments.core]"), (RELAYED, RELAYED_TWICE), ("count = 4", 'count = 4\nlines = [{ segment = "island" }] # line'), mark="# line", says=("addresses on some of its segments, and not on all",), remedy="here and for the node"),
    case("line-address", ("[segments.core]", ISLAND + "[segments.core]"), (RELAYED, RELAYED_TWICE), ("count = 4", 'count = 4\nlines = [{ segment = "island", addresses = "10.0.9.9" }] # line'), mark="# line", says=("count = 4 and 1 addresses on island",), remedy="count = 1"),
    case("line-parent", ("[segments.core]", ISLAND + "[segments.core]"), (RELAYED, RELAYED_TWICE), ("count = 4", 'count = 4\nlines = [{ segment = "island", addresses = "10.0.9.9-10.0.9.12", parents = ["floor-repairer"] }]'), mark='"floor-repairer"] }]', says=("'floor-repairer', a parent of 'desk-*' on island, does not answer there",), remedy="answers there: relay"),
    case("line-parent", ("[segments.core]", ISLAND + "[segments.core]"), ('address = "10.0.0.10"', 'address = "10.0.0.10"\nlines = [{ segment = "island", address = "10.0.9.1", parents = ["relay"] }]'), mark='parents = ["relay"] }]', says=("the source 'exchange' has parents on island",), remedy="remove"),
    case("line-fed", ("[segments.core]", ISLAND + "[segments.core]"), ("count = 4", 'count = 4\nlines = [{ segment = "island", addresses = "10.0.9.9-10.0.9.12" }] # line'), mark="# line", says=("island does not bring 'quotes' of 'exchange' to 'desk-*', as floor does",), remedy="below a relay"),
    case("line-flow", ("[segments.core]", ISLAND + "[segments.core]"), ('window = "10s"', 'window = "10s"\nflow = "pgmcc"'), ('address = "10.0.0.10"', 'address = "10.0.0.10"\nlines = [{ segment = "island", address = "10.0.9.1" }] # line'), mark="# line", says=("'quotes' of 'exchange' has lines and flow = 'pgmcc': no receiver reports",), remedy='flow = "rate" or "acked"'),
    # Addresses
    case("group", ("239.192.0.2", "10.192.0.2"), mark="10.192.0.2", says=("10.192.0.2 of 'floor' is not a multicast",), remedy="239.192.0.0/14"),
    case("segment-clash", ('"239.192.0.2"', '"239.192.0.1" # twice'), ("10.0.1.0/24", "10.0.0.0/16"), mark='group = "239.192.0.1" # twice', says=("'core' and 'floor' share the group 239.192.0.1:3056", "10.0.0.0/24"), remedy="group of its own"),
    case("family", ("239.192.0.2", "ff15::2"), mark='interface = "10.0.1.0/24"', says=("group ff15::2 with the interface 10.0.1.0/24",), remedy="IPv4 or IPv6"),
    case("family", ('"10.0.0.11"', '"fd00::11"'), mark="fd00::11", says=("'core-repairer' has the address fd00::11 on core, whose group is 239.192.0.1",), remedy="IPv4 address"),
    case("unicast", ('"10.0.0.11"', '"224.0.0.11"'), mark="224.0.0.11", says=("'core-repairer' cannot have the address 224.0.0.11",), remedy="one interface of this node"),
    case("inside", ('"10.0.0.12"', '"10.0.7.12"'), mark="10.0.7.12", says=("'relay' has the address 10.0.7.12, outside 10.0.0.0/24 of core",), remedy="an address of 10.0.0.0/24"),
    case("inside", ("10.0.1.10-10.0.1.19", "10.0.1.10-10.0.2.9"), mark="10.0.2.9", says=("10.0.1.10-10.0.2.9, outside 10.0.1.0/24",), remedy="correct the interface of floor"),
    case("address", ('address = "10.0.0.11"\n', ""), mark="nodes.core-repairer", says=("repairer 'core-repairer' has no address on core",), remedy='address = "10.0.0.2"'),
    case("address", ('interface = "10.0.1.0/24"', 'interface = "lo"'), ("desk-*", "desk"), ('count = 4\naddresses = "10.0.1.10-10.0.1.19"\n', ""), mark="nodes.\"desk\"", says=("receiver 'desk' has no address on floor, which is on loopback",), remedy='address = "127.0.0.2"'),
    case("pool", ("count = 4", "count = 11"), mark="addresses", says=("'desk-*' has count = 11 and 10 addresses (10.0.1.10-10.0.1.19)",), remedy="count = 10"),
    case("pool", ('interface = "10.0.1.0/24"', 'interface = "lo"'), ('addresses = "10.0.1.10-10.0.1.19"\n', ""), mark="desk-*", says=("'desk-*' has no addresses on floor, which is on loopback",), remedy='addresses = "127.0.0.10-127.0.0.13"'),
    case("socket-clash", ('address = "10.0.0.11"', 'address = "10.0.0.10" # clash'), mark="# clash", says=("'exchange' and 'core-repairer' both use 10.0.0.10 port 3056",), remedy="unicast_port"),
    case("socket-clash", ('address = "10.0.1.2"', 'address = "10.0.1.15"'), mark="10.0.1.15", says=("both use 10.0.1.15 port 3056 (within 10.0.1.10-10.0.1.19)",), remedy="its own address"),
    case("loopback-ipv6", (DESK, f'[segments.six]\ngroup = "ff15::9"\ninterface = "::1"\n{DESK}'), mark="ff15::9", says=("'six' has the IPv6 group ff15::9 on loopback",), remedy="veth"),
    case("segment-clash", ('"239.192.0.2"', '"239.192.0.1" # twice\nport = 4000\ntransport = "ip"'), ('"239.192.0.1"', '"239.192.0.1"\ntransport = "ip"'), ("10.0.1.0/24", "10.0.0.0/16"), mark='group = "239.192.0.1" # twice', says=("share the group 239.192.0.1 over IP protocol 113",), remedy="group of its own"),
    case("socket-clash", ('"239.192.0.1"', '"239.192.0.1"\ntransport = "ip"'), ('"239.192.0.2"', '"239.192.0.2"\ntransport = "ip"\nunicast_port = 4000'), ("10.0.1.0/24", "10.0.0.0/16"), ('"10.0.1.2"', '"10.0.0.11" # clash'), mark="# clash", says=("'core-repairer' and 'floor-repairer' both use IP protocol 113 on 10.0.0.11",), remedy="its own address"),
    case("family", ('group = "239.192.0.2"\ninterface = "10.0.1.0/24"', "unicast = true"), ('"10.0.1.2"', '"fd00::2"'), mark="fd00::2", says=("'floor-repairer' has the address fd00::2 on floor, where others have IPv4",), remedy="IPv4 address"),
    case("address", ('group = "239.192.0.2"\ninterface = "10.0.1.0/24"', "unicast = true"), ("desk-*", "desk"), ('count = 4\naddresses = "10.0.1.10-10.0.1.19"\n', ""), mark='nodes."desk"', says=("receiver 'desk' has no address on floor, which is a unicast leg",), remedy='address = "10.0.0.2"'),
    case("pool", ('group = "239.192.0.2"\ninterface = "10.0.1.0/24"', "unicast = true"), ('addresses = "10.0.1.10-10.0.1.19"\n', ""), mark="desk-*", says=("'desk-*' has no addresses on floor, which is a unicast leg",), remedy='addresses = "10.0.0.10-10.0.0.13"'),
    # Keys
    case("stream-signed", ("data_port = 7500", "data_port = 7500\nsigned = true # yes"), mark="# yes", says=("the stream 'quotes' is signed, and its source 'exchange' has no keys",), remedy="pgm keys new tree.toml --node exchange"),
    case("stream-authenticated", ("data_port = 7500", "data_port = 7500\nauthenticated = true"), mark="nodes.exchange", says=("the stream 'quotes' is authenticated, and 'exchange' has no keys",), remedy="pgm keys new tree.toml --node exchange"),
    case("stream-authenticated", ("data_port = 7500", "data_port = 7500\nauthenticated = true"), mark="desk-*", says=("'desk-1' and 3 more have no keys",), remedy="pgm keys new tree.toml --node desk-1"),
    case("stream-authenticated", ("data_port = 7500", "data_port = 7500\nauthenticated = true"), ('addresses = "10.0.1.10-10.0.1.19"', ""), mark="desk-*", says=("'desk-*' has no address on 'floor'",), remedy="write addresses"),
    case("stream-signed", ("[segments.core]", "[streams.trades]\ndata_port = 7501\nsigned = true # yes\n[segments.core]"), mark="# yes", says=("'trades' is signed, and the file has no source of it",), remedy='streams = ["trades"]'),
    case("half-secured", ("data_port = 7500", "data_port = 7500\nauthenticated = true # yes"), mark="# yes", says=("the control of 'quotes' is authenticated, and its data are not signed",), remedy="write signed = true"),
    case("half-secured", ("data_port = 7500", 'data_port = 7500\norder = "unordered"\nsigned = true # yes'), mark="# yes", says=("its order is 'unordered'",), remedy='order = "ordered"'),
    case("half-secured", ("data_port = 7500", 'data_port = 7500\nflow = "acked"\nsigned = true # yes'), mark="# yes", says=("its acks are not authenticated",), remedy="authenticated = true"),
    case("half-secured", ("[segments.core]", "[streams.trades]\ndata_port = 7501\nsigned = true\n[segments.core]"), mark="[streams.quotes]", says=("'quotes' is in the clear, and 'trades' is protected",), remedy="signed = true"),
    case("half-secured", KEYED, mark="keys.exchange", says=("the keys protect nothing",), remedy="signed = true"),
    case("stream-verify", ("data_port = 7500", 'data_port = 7500\nverify = "after" # late'), mark="# late", says=("'quotes' has verify = 'after', and its packets are not proved",), remedy="signed = true"),
    case("stream-verify", (SEALED[0], SEALED[1] + '\nverify = "after" # late'), ("count = 4", "count = 1"), KEYED, mark="# late", says=("and a proof tells the secret of its packets",), remedy="leave out verify"),
    case("stream-sealed", ("data_port = 7500", "data_port = 7500\nsealed = true # yes"), ("count = 4", "count = 1"), KEYED, mark="# yes", says=("the stream 'quotes' is sealed, and not signed",), remedy="signed = true"),
    case("stream-sealed", (SEALED[0], SEALED[1] + '\nreaders = ["exchange"]'), (KEYS_AT, f'name = "good"\nkeys.desk-1 = ["{KEYS_ONE}"]\n'), mark="# yes", says=("is sealed, and no node that may read it has keys",), remedy="pgm keys new tree.toml --node NAME"),
    case("stream-sealed", ("data_port = 7500", 'data_port = 7500\nreaders = ["desk-*"] # list'), mark="# list", says=("'quotes' has readers, and is not sealed",), remedy="sealed = true"),
    case("stream-readers", (SEALED[0], SEALED[1] + '\nreaders = ["desk-1", "dask-2"] # list'), KEYED, mark="# list", says=("the reader 'dask-2' of 'quotes' is no node of the file",), remedy="did you mean 'desk-*'?"),
    case("stream-readers", (SEALED[0], SEALED[1] + '\nreaders = ["desk-1", "relay"] # list'), KEYED, mark="# list", says=("the aggregator 'relay' is a reader of 'quotes', and needs no secret",), remedy="without keys"),
    case("reader-keys", SEALED, KEYED, mark="# yes", says=("'quotes' is sealed, and its receiver 'desk-2' and 2 others of 'desk-*' has no keys",), remedy="pgm keys new tree.toml --node desk-2"),
    case("key-owner", (KEYS_AT, f'name = "good"\nkeys.nobody = ["{KEYS_ONE}"]\n'), mark="keys.nobody", says=("the keys of 'nobody' belong to no node",), remedy="known are"),
    case("key-owner", (KEYS_AT, f'name = "good"\nkeys."desk-*" = ["{KEYS_ONE}"]\n'), mark="keys.", says=("the pattern 'desk-*' has keys, which all its nodes would share",), remedy="as in 'desk-1'"),
    case("key-shared", (KEYS_AT, f'name = "good"\nkeys.relay = ["{KEYS_ONE}"]\nkeys.desk-1 = ["{KEYS_ONE}"]\n'), mark="keys.desk-1", says=("of 'desk-1' are those of relay[0]",), remedy="pgm keys new"),
    case("key-gap", (KEYS_AT, f'name = "good"\nkeys.relay = ["{KEYS_ONE}", "{KEYS_LATE}"]\n'), mark="keys.relay", says=("'relay' has no valid keys from 2028-01-01 to 2029-01-01",), remedy="write the first day 2028-01-01 or earlier"),
    case("key-revoked", (KEYS_AT, f'name = "good"\nkeys.relay = ["{KEYS_ONE}"]\nrevoked.{KEYS_ONE.split()[1]} = "stolen"\n'), mark="keys.relay", says=("of 'relay' are revoked: stolen",), remedy="pgm keys new tree.toml --node relay"),
    # Transport
    case("probe-port", ('name = "good"', 'name = "good"\nfleet.probe_port = 3056'), mark="segments.core]", says=("'core' has port 3056, on which pgm netcheck sends probes",), remedy="another probe_port"),
    case("leg", ('"239.192.0.2"', '"239.192.0.2"\nunicast = true'), mark="239.192.0.2", says=("'floor' is a unicast leg and has the group 239.192.0.2",), remedy="remove group"),
    case("leg", (DESK, f"[segments.wan]\nunicast = true\n{DESK}"), mark="segments.wan", says=("no node on the unicast leg 'wan' has an address",), remedy="relays of both ends"),
    case("copies", ('group = "239.192.0.2"', "unicast = true"), ("count = 4", "count = 9"), mark="unicast = true", says=("of the unicast leg 'floor' is sent 11 times",), remedy="multicast segment"),
    # Timers
    case("increment", ('window = "10s"', 'window = "10s"\nparameters = { txw_adv_secs = "11s" }'), mark='window = "10s"', says=("txw_adv_secs = 11s is above txw_secs = 10s (exchange)",), remedy='txw_secs = "11s" or more'),
    case("yielding", ('name = "good"', 'name = "good"\nparameters = { txw_min_rte = "500Mbit/s" }'), mark="txw_min_rte", says=("txw_min_rte = 500Mbit/s is above txw_max_rte = 400Mbit/s (exchange): the source never slows down",), remedy='set txw_min_rte = "200Mbit/s" or less'),
    case("heartbeat", ('name = "good"', 'name = "good"\nparameters = { ihb_min = "3s" }'), mark="ihb_min", says=("ihb_min = 3s is above ihb_max = 2s (exchange)",), remedy='ihb_min = "2s" or less'),
    case("back-off", ('name = "good"', 'name = "good"\nparameters = { nak_bo_tuning = "duplicates", nak_bo_ivl_max = "5ms" }'), mark="nak_bo_ivl_max", says=("nak_bo_ivl_default = 10ms is above nak_bo_ivl_max = 5ms",), remedy='nak_bo_ivl_max = "10ms" or more'),
    case("polls", ('name = "good"', 'name = "good"\nparameters = { poll_ivl = "900ms" }'), mark="poll_ivl", says=("2 x poll_bo_ivl = 1s is above poll_ivl = 900ms",), remedy='poll_ivl = "1s" or more'),
    case("parity-legacy", ('name = "good"', 'name = "good"\nprofile = "legacy"\nparameters = { fec_group = 32 }'), mark="fec_group", says=("fec_group = 32 with the profile legacy",), remedy="omit fec_group"),
    case("parity", ('name = "good"', 'name = "good"\nparameters = { fec_group = 48 }'), mark="fec_group", says=("fec_group = 48 is not a power of two",), remedy="set fec_group = 32 or 64"),
    case("parity", ('name = "good"', 'name = "good"\nparameters = { fec_proactive = 2 }'), mark="fec_proactive", says=("fec_proactive = 2 without fec_group",), remedy="set fec_group = 32"),
    case("parity", ('name = "good"', 'name = "good"\nparameters = { fec_group = 128, fec_proactive = 127 }'), mark="fec_proactive", says=("more than 254 packets",), remedy="set fec_proactive = 126 or less"),
    case("parity", ('name = "good"', 'name = "good"\nparameters = { fec_group = 8, fec_on_demand = false }'), mark="fec_on_demand", says=("offers no parity",), remedy="fec_proactive = 1 or more"),
    case("silence", ('name = "good"', 'name = "good"\nparameters = { stall_ivl = "3s" }'), mark="stall_ivl", says=("2 x ihb_max = 4s (exchange) is above stall_ivl = 3s (core-repairer, relay, standby and 2 more)",), remedy='stall_ivl = "4s" or more, or ihb_max = "1500ms" or less'),
    case("silence", ("count = 4", 'count = 4\nparameters = { peer_expiry = "4s" }'), mark="peer_expiry", says=("stall_ivl = 4s is not below peer_expiry = 4s (desk-*)",), remedy='peer_expiry = "8s" or more'),
    case("silence", ("count = 4", 'count = 4\nparameters = { session_expiry = "10s" }'), mark="session_expiry", says=("peer_expiry = 10s is not below session_expiry = 10s (desk-*)",), remedy='session_expiry = "20s" or more'),
    case("takeover", ("repairers = [", 'parameters = { relay_takeover_ivl = "2s" }\nrepairers = ['), mark="relay_takeover_ivl", says=("ihb_max = 2s (exchange) is not below relay_takeover_ivl = 2s (relay)",), remedy='relay_takeover_ivl = "4s" or more'),
    case("takeover", ('window = "10s"', 'parameters = { ambient_spm_ivl = "5s" }'), mark="ambient_spm_ivl", says=("ambient_spm_ivl = 5s (exchange) is not below relay_takeover_ivl = 5s (relay, standby)",), remedy='ambient_spm_ivl = "2500ms" or less'),
    case("ignore", ("cache = {", 'parameters = { rdata_ignore_ivl = "200ms" }\ncache = {'), mark="rdata_ignore_ivl", says=("rdata_ignore_ivl = 200ms (core-repairer) is not below nak_rdata_ivl = 200ms (floor-repairer, desk-*)",), remedy='rdata_ignore_ivl = "100ms" or less'),
    case("repeat", ("cache = {", 'parameters = { rdata_ignore_ivl = "20ms" }\ncache = {'), mark="rdata_ignore_ivl", says=("2 x rdata_ignore_ivl = 40ms (core-repairer) is above nak_rdata_min_ivl = 20ms (floor-repairer, desk-*)",), remedy='set nak_rdata_min_ivl = "40ms" or more, or rdata_ignore_ivl = "10ms" or less'),
    case("repeat", ("count = 4", 'count = 4\nparameters = { nak_rdata_ivl = "15ms" }'), mark="nak_rdata_ivl", says=("2 x rdata_ignore_ivl = 20ms (floor-repairer, core-repairer, exchange) is above nak_rdata_ivl = 15ms (desk-*)",), remedy='set nak_rdata_ivl = "20ms" or more, or rdata_ignore_ivl = "7500us" or less'),
    case("hold", ("cache = {", 'parameters = { rdata_hold_ivl = "300ms" }\ncache = {'), mark="rdata_hold_ivl", says=("rdata_hold_ivl = 300ms (core-repairer) is not below nak_rdata_ivl = 200ms",), remedy='nak_rdata_ivl = "600ms" or more'),
    case("elimination", ("repairers = [", 'parameters = { nak_elim_ivl = "2s" }\nrepairers = ['), mark="nak_elim_ivl", says=("2 x nak_elim_ivl = 4s is above ne_nak_rdata_ivl = 2s (relay)",), remedy='nak_elim_ivl = "1s" or less'),
    case("cache", ('bytes = "4GiB"', 'bytes = "1GiB"'), mark="1GiB", says=("holds 1GiB: less than 400Mbit/s x 1min = 2862MiB",), remedy='bytes = "2862MiB", or seconds = 21'),
    case("outlasts", ('window = "10s"', 'window = "2s"'), mark="2s", says=("the window of the stream 'quotes' at 'exchange' keeps packets for 2s (txw_secs)", "a repair for core-repairer may take 2573ms", "750ms until a heartbeat after 3 lost ones (ihb_min, ihb_max) + 11ms until the first NAK", "+ 380ms for 3 lost NAKs (nak_rpt_ivl, nak_max_ivl, nak_bo_ivl) + 1430ms for 3 lost repairs"), remedy='set window = "2600ms" or more, or shorten nak_rdata_ivl'),
    case("outlasts", ("seconds = 60", "seconds = 2"), mark="seconds = 2", says=("the cache of 'core-repairer' keeps packets for 2s (cache_secs), and a repair for floor-repairer may take 2874ms", "+ 300ms for 3 lost NAKs of relay (ne_nak_rpt_rte, ne_nak_rpt_ivl)"), remedy='set cache_secs = "2900ms" or more'),
]
# fmt: on
