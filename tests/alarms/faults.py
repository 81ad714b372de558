"""For each alarm a fault that a fleet can have: how hosts are set up, what breaks, and how it is mended."""

from dataclasses import dataclass
from typing import Callable

from outage import Answer, denied

GIVE_UP = '[failure]\nattempts = 2\non-exhausted = "dead-letter"\ndead-letter = "letters"\n' \
    '[sinks.letters]\ntype = "file"\npath = "letters.ndjson"'
# Room for the instances of eight shards, and not for their batches of large records.
LITTLE_MEMORY = 'instances-memory = "16MiB"'
NO_SUCH_SHARD = "shardId-000000000077"


@dataclass
class Fault:
    """What makes one alarm fire."""

    alarm: str
    what: str
    break_: Callable
    mend: Callable
    prepare: Callable = lambda scene, guests: scene.add_host(guests("echo"))
    shards: int = 2
    # Named after the alarm, unless there are two faults of one.
    fleet: str = ""
    # Alarms that this fault rightly sets off as well.
    also: tuple = ()


def mend(scene, _guests):
    scene.heal()


def nothing(_scene, _guests):
    pass


def refuse_sink(scene, _guests):
    scene.sink.break_(lambda: 500)


def refuse(service, resource, *operations):
    """`resource` is `stream/` or `table/`, whose name is the scene's."""

    def break_(scene, _guests):
        answer = denied(service, resource + scene.name)

        def fault(request):
            of_table = any(table == scene.name for _, table in request.rights)
            if request.operation in operations and (service == "kinesis" or of_table):
                answer(request.operation)

        getattr(scene, service).break_(fault)

    return break_


def fail_tables(scene, _guests):
    def fault(_request):
        raise Answer("InternalServerError", "Internal server error", 500)

    scene.dynamodb.break_(fault)


def two_hosts_of_one_lease(scene, guests):
    for _ in range(2):
        scene.add_host(guests("echo"), more_leases="max = 1")


def stop_second(scene, _guests):
    scene.hosts[1].stop()


def start_second(scene, _guests):
    scene.hosts[1].start()


def stop_all(scene, _guests):
    for host in scene.hosts:
        host.stop()


def start_all(scene, _guests):
    for host in scene.hosts:
        host.start()


def delete_row(scene, guests):
    refuse("dynamodb", "table/", "PutItem")(scene, guests)
    row = {"leaseKey": {"S": "shardId-000000000000"}}
    scene.aws.dynamodb("DeleteItem", TableName=scene.name, Key=row)


def add_row_of_a_shard_that_is_gone(scene, _guests):
    row = {
        "leaseKey": {"S": NO_SUCH_SHARD},
        "checkpoint": {"S": "TRIM_HORIZON"},
        "checkpointSubSequenceNumber": {"N": "0"},
        "leaseCounter": {"N": "0"},
        "ownerSwitchesSinceCheckpoint": {"N": "0"},
    }
    scene.aws.dynamodb("PutItem", TableName=scene.name, Item=row)


def checkpoint_before_the_oldest_record(scene, _guests):
    """As after a day in which no host ran: the record that was read last is not there any more."""
    scene.hosts[0].stop()
    shard = "shardId-000000000000"
    at = scene.aws.kinesis("GetShardIterator", StreamName=scene.name, ShardId=shard, ShardIteratorType="TRIM_HORIZON")
    oldest = scene.aws.kinesis("GetRecords", ShardIterator=at["ShardIterator"], Limit=1)["Records"][0]
    # A second earlier, as emulators encode the time in it.
    before = int(oldest["SequenceNumber"]) - (1 << 36)
    scene.aws.dynamodb(
        "UpdateItem", TableName=scene.name, Key={"leaseKey": {"S": shard}},
        UpdateExpression="SET #c = :c", ExpressionAttributeNames={"#c": "checkpoint"},
        ExpressionAttributeValues={":c": {"S": str(before)}},
    )
    scene.hosts[0].start()


def put_poison(scene, _guests):
    scene.more_fields = {"bad": "trap"}


def put_large(scene, _guests):
    scene.more_fields = {"filler": "x" * 400_000}


def put_usual(scene, _guests):
    scene.more_fields = {}


def replace_by(conduct, version, host=0):
    def replace(scene, guests):
        scene.hosts[host].replace(guests("conduct", version=version, conduct=conduct))

    return replace


def hosts_of_one_version(count):
    def prepare(scene, guests):
        for _ in range(count):
            scene.add_host(guests("conduct", version=1, conduct="good"))

    return prepare


FAULTS = [
    Fault("ShardLags", "the sink refuses for longer than the alarm's limit", refuse_sink, mend, also=("ShardBlocked", "HostNotReady")),
    Fault("ShardBlocked", "`GetRecords` is refused", refuse("kinesis", "stream/", "GetRecords"), mend, also=("ShardLags", "HostNotReady")),
    Fault("HostNotReady", "DynamoDB answers 500", fail_tables, mend, also=("TableRequestsFail", "PluginNotServed", "ShardLags", "ShardBlocked")),
    Fault("PluginNotServed", "one of two hosts with `leases.max = 1` is stopped", stop_second, start_second, prepare=two_hosts_of_one_lease),
    Fault("PluginNotServed", "all hosts of a fleet are stopped, while others run", stop_all, start_all, fleet="fleet-without-hosts"),
    Fault("HashKeysWithoutLease", "a lease's row is deleted, and no right to create another", delete_row, mend, also=("TableRequestsFail", "HostNotReady")),
    Fault("ShardLostToRetention", "a lease whose shard is not in the stream", add_row_of_a_shard_that_is_gone, nothing, also=("ShardBlocked",)),
    Fault("RecordsMaybeTrimmed", "a checkpoint at a record that is gone", checkpoint_before_the_oldest_record, nothing, also=("PluginNotServed",)),
    Fault("RecordsGivenUp", "records that trap, and two attempts", put_poison, put_usual, prepare=lambda scene, guests: scene.add_host(guests("poison"), more=GIVE_UP), also=("ShardBlocked", "ShardLags")),
    Fault("VersionRolledBack", "a new version that traps", replace_by("trap", 2), nothing, prepare=hosts_of_one_version(1)),
    Fault("HostsRunDifferentVersions", "a new file on one of two hosts", replace_by("good", 2, host=1), replace_by("good", 2), prepare=hosts_of_one_version(2)),
    Fault("TableRequestsFail", "`Scan` of the lease table is refused", refuse("dynamodb", "table/", "Scan"), mend, also=("HostNotReady",)),
    Fault("InstancesRunOutOfMemory", "records of 400 KB with 16 MiB for all instances", put_large, put_usual, prepare=lambda scene, guests: scene.add_host(guests("echo"), more="[limits]\nmemory = \"16MiB\"", more_host=LITTLE_MEMORY), shards=8, also=("ShardLags", "ShardBlocked", "HostNotReady")),
]
