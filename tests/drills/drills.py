"""What is broken, how, and which words of a sign name it."""

import os
import subprocess
import time
from dataclasses import dataclass
from typing import Callable

from outage import Answer, denied

FILE_SINK = 'type = "file"\npath = "out/lines.ndjson"'
STATE = "[plugin.{name}.grants]\nstate = true"


@dataclass
class Drill:
    """One outage."""

    name: str
    # For people.
    what: str
    break_: Callable
    heal: Callable
    # What a sign must contain to name the cause; the pages say more.
    words: str
    # The same for `explain`, if the host cannot report why: then `leases`, which looks once, shows nothing.
    from_afar: str = ""
    # The gauges that show it; they have no room for the cause itself.
    gauges: str = 'why="sink"'
    # Whether it is broken before the host starts.
    is_at_start: bool = False
    prepare: Callable = lambda scene: scene.write_config(FILE_SINK)
    # The plugin that runs.
    plugin: str = "echo"
    # Whether a shard is split while it is broken, and which shard `explain` is asked about then: the split one is 0, the one
    # that stays open 1, its children are 2 and 3.
    splits: bool = False
    asked_shard: str = "1"
    # Whether `/ready` correctly stays at 200.
    stays_ready: bool = False
    # What `status --check` must say, with exit code 1, to whoever meets the same outage as the host; nothing is asked if empty.
    status_says: str = ""
    # How long the host can still use what it has; a sign may come that much later.
    lasts_seconds: int = 0
    # Whether the host should exit, because it cannot start.
    ends: bool = False
    # Whether it can be healed without loss: a deleted stream is gone.
    is_healed: bool = True

    def words_of(self, sign):
        if sign == "/metrics":
            return self.gauges
        if sign == "/ready" and self.stays_ready:
            return None
        if self.from_afar and sign in ("explain", "leases"):
            return self.from_afar if sign == "explain" else None
        return self.words


def heal_all(scene):
    for proxy in (scene.kinesis, scene.dynamodb, scene.sink):
        proxy.heal()


def both(fault):
    def break_(scene):
        for proxy in (scene.kinesis, scene.dynamodb):
            proxy.break_(lambda request, proxy=proxy: fault(proxy))
            proxy.server.cut()

    return break_


def refuse_table(suffix, operation):
    def break_(scene):
        table = scene.name + suffix
        refuse = denied("dynamodb", f"table/{table}")

        def fault(request):
            if (operation, table) in request.rights:
                scene.refused += 1
                refuse(operation)

        scene.dynamodb.break_(fault)

    return break_


def refuse_kinesis(*operations):
    def break_(scene):
        refuse = denied("kinesis", f"stream/{scene.name}")

        def fault(request):
            if request.operation in operations:
                scene.refused += 1
                refuse(request.operation)

        scene.kinesis.break_(fault)

    return break_


def answer(proxy_name, code, message, only=None):
    def break_(scene):
        def fault(request):
            if only is None or request.operation in only:
                raise Answer(code, message)

        getattr(scene, proxy_name).break_(fault)

    return break_


def hang(*names):
    def break_(scene):
        for name in names:
            proxy = getattr(scene, name)
            proxy.break_(lambda *_, proxy=proxy: proxy.hang())

    return break_


def down(*names):
    def break_(scene):
        for name in names:
            getattr(scene, name).server.down()

    return break_


def up(*names):
    def heal(scene):
        for name in names:
            getattr(scene, name).server.up()

    return heal


def http_sink(scene):
    scene.write_config(f'type = "http"\nurl = "{scene.sink.url}"')
    scene.reads_sink = lambda: list(scene.sink.lines)


def http_answers(act):
    return lambda scene: scene.sink.break_(lambda: act(scene))


def kinesis_sink(scene, makes_stream=True):
    if makes_stream:
        scene.aws.make_stream(scene.out_stream, 1)
    scene.write_config(f'type = "kinesis"\nstream = "{scene.out_stream}"')
    scene.reads_sink = lambda: scene.aws.lines_in(scene.out_stream)


def with_state(scene):
    scene.write_config(FILE_SINK, STATE.format(name=scene.name))


def listing_often(scene):
    scene.sync_every = "5s"
    scene.write_config(FILE_SINK)


def on_small_disk(scene):
    """Mounts a separate disk of 1 MiB as the sink's folder."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", scene.out.parent], check=True)
    scene.write_config(FILE_SINK)


def fill_disk(scene):
    with open(scene.out.parent / "filler", "wb", buffering=0) as filler:
        try:
            while filler.write(bytes(4096)):
                pass
        except OSError:
            pass


def by_role(scene):
    """Credentials come from the endpoint of a container's role."""
    scene.write_config(FILE_SINK)
    scene.environment = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": scene.role.url}


def by_name(scene):
    """The services have names, which only the host's own /etc/hosts resolves."""
    scene.hosts = scene.folder / "hosts"
    scene.hosts.write_text("127.0.0.1 localhost aws.drill.invalid\n")
    scene.wrap = ["unshare", "-m", "sh", "-c", 'mount --bind hosts /etc/hosts && exec "$0" "$@"']
    scene.kinesis_url = scene.kinesis.url.replace("127.0.0.1", "aws.drill.invalid")
    scene.dynamodb_url = scene.dynamodb.url.replace("127.0.0.1", "aws.drill.invalid")
    scene.write_config(FILE_SINK)


def forget_names(scene):
    scene.hosts.write_text("127.0.0.1 localhost\n")
    for proxy in (scene.kinesis, scene.dynamodb):
        proxy.server.cut()


def know_names(scene):
    scene.hosts.write_text("127.0.0.1 localhost aws.drill.invalid\n")


def delete_stream(scene):
    scene.aws.kinesis("DeleteStream", StreamName=scene.name)


def recreate_stream(scene):
    delete_stream(scene)
    # Deleting takes AWS longer.
    time.sleep(5)
    scene.aws.make_stream(scene.name, 2)


def set_role(is_gone):
    def change(scene):
        scene.role.is_gone = is_gone

    return change


def set_keys(scene):
    scene.environment = {}
    scene.write_config(FILE_SINK)


def nothing(_scene):
    pass


def wait(seconds):
    return lambda scene: time.sleep(seconds)


READING = 'why="reading"'
NOT_READY = "ready 0"
# What commands can report about a host that can write nothing: it is silent, or absent.
UNSEEN = "not seen to move|silent|no live worker|has no row|no lease table"
THROTTLED = "The level of configured provisioned throughput for the table was exceeded"
EXPIRED = ("ExpiredTokenException", "The security token included in the request is expired")


def sinks():
    yield Drill("http-down", "HTTP sink: nothing listens", down("sink"), up("sink"), "cannot connect|refused", prepare=http_sink)
    yield Drill("http-slow", "HTTP sink: answers after 8 s", http_answers(wait(8)), heal_all, "storing|take[ns]", prepare=http_sink, stays_ready=True)
    yield Drill("http-hangs", "HTTP sink: no answer", http_answers(lambda scene: scene.sink.hang()), heal_all, "storing|no answer", prepare=http_sink)
    for status in (401, 404, 429, 500):
        yield Drill(f"http-{status}", f"HTTP sink: {status}", http_answers(lambda _, status=status: status), heal_all, str(status), prepare=http_sink)
    yield Drill("http-500-start", "HTTP sink: 500, from the start", http_answers(lambda _: 500), heal_all, "500", prepare=http_sink, is_at_start=True)
    gone = lambda scene: scene.aws.kinesis("DeleteStream", StreamName=scene.out_stream)
    back = lambda scene: scene.aws.make_stream(scene.out_stream, 1)
    yield Drill("sink-stream-missing", "Kinesis sink: no stream, from the start", nothing, back, "ResourceNotFound|no stream|not found", prepare=lambda scene: kinesis_sink(scene, False), is_at_start=True)
    yield Drill("sink-stream-refused", "Kinesis sink: `PutRecords` refused", refuse_kinesis("PutRecords"), heal_all, "kinesis:PutRecords", prepare=kinesis_sink)
    yield Drill("sink-stream-throttled", "Kinesis sink: throttled forever", answer("kinesis", "ProvisionedThroughputExceededException", "Rate exceeded", ["PutRecords"]), heal_all, "ProvisionedThroughput|Rate exceeded", prepare=kinesis_sink)
    if os.geteuid() == 0:
        yield Drill("disk-full", "file sink: disk full", fill_disk, lambda scene: (scene.out.parent / "filler").unlink(), "no space|full", prepare=on_small_disk)
    yield Drill("file-no-folder", "file sink: a folder that cannot be made, from the start", nothing, nothing, "Not a directory|cannot|directory", prepare=lambda scene: scene.write_config('type = "file"\npath = "shardmill.toml/lines.ndjson"'), is_at_start=True, ends=True)


def tables():
    rights = {
        "": ("lease table", ("GetItem", "PutItem", "UpdateItem", "DeleteItem", "Scan", "DescribeTable", "CreateTable")),
        "-coordinator": ("coordinator table", ("GetItem", "PutItem", "UpdateItem", "DeleteItem", "Query", "Scan", "DescribeTable", "CreateTable")),
        "-state": ("state table", ("GetItem", "PutItem", "DeleteItem", "DescribeTable", "CreateTable")),
    }
    for suffix, (table, operations) in rights.items():
        state = {"plugin": "totals", "prepare": with_state} if suffix == "-state" else {}
        for operation in operations:
            more = {"break_": refuse_table(suffix, operation), "heal": heal_all, "words": f"dynamodb:{operation}", "gauges": NOT_READY, **state}
            name = f"{table.split()[0]}-{operation.lower()}"
            # A host that is not registered yet reports nothing to others.
            is_registered = (suffix, operation) in [("", "PutItem"), ("-state", "GetItem"), ("-coordinator", "UpdateItem")]
            from_afar = "" if is_registered else UNSEEN
            yield Drill(f"{name}-start", f"{table}: `{operation}` refused, from the start", is_at_start=True, from_afar=from_afar, **more)
            if operation not in ("DescribeTable", "CreateTable"):
                # Without a heartbeat rows are renewed one by one: no shard is held up.
                of_one = {
                    ("", "PutItem"): {"asked_shard": "0"},
                    ("-coordinator", "PutItem"): {"from_afar": f"it moves|{UNSEEN}"},
                    ("-coordinator", "Query"): {"status_says": "the coordinator table cannot be read: .*dynamodb:Query"},
                    ("-state", "GetItem"): {"asked_shard": "0", "stays_ready": True, "gauges": 'why="state"'},
                }
                settings = more | of_one.get((suffix, operation), {})
                yield Drill(name, f"{table}: `{operation}` refused, and a shard is split", splits=True, **settings)
    throttled = answer("dynamodb", "ProvisionedThroughputExceededException", THROTTLED)
    yield Drill("tables-throttled", "all tables throttled forever", throttled, heal_all, "ProvisionedThroughput|throttle", gauges=NOT_READY, from_afar=UNSEEN)
    yield Drill("tables-throttled-start", "all tables throttled, from the start", throttled, heal_all, "ProvisionedThroughput|throttle", is_at_start=True, gauges=NOT_READY, from_afar=UNSEEN)
    yield Drill("tables-hang", "DynamoDB does not answer", hang("dynamodb"), heal_all, "no answer", gauges=NOT_READY, from_afar=UNSEEN)
    yield Drill("tables-down", "DynamoDB: nothing listens", down("dynamodb"), up("dynamodb"), "cannot be reached|refused", gauges=NOT_READY, from_afar=UNSEEN)
    yield Drill("tables-500", "DynamoDB: 500", answer("dynamodb", "InternalServerError", "Internal server error"), heal_all, "InternalServerError", gauges=NOT_READY, from_afar=UNSEEN)


def streams():
    for operation in ("GetRecords", "GetShardIterator", "ListShards", "DescribeStreamSummary"):
        more = {"break_": refuse_kinesis(operation), "heal": heal_all, "words": f"kinesis:{operation}", "prepare": listing_often}
        yield Drill(f"{operation.lower()}", f"Kinesis: `{operation}` refused", gauges=READING if operation.startswith("Get") else NOT_READY, **more)
        yield Drill(f"{operation.lower()}-start", f"Kinesis: `{operation}` refused, from the start", is_at_start=True, gauges=READING if operation.startswith("Get") else NOT_READY, from_afar=UNSEEN if operation.startswith("Describe") else "", **more)
    gone = answer("kinesis", "ResourceNotFoundException", "Stream drill under account 123456789012 not found.")
    yield Drill("stream-gone", "the stream is not found", gone, heal_all, "not found|no stream|ResourceNotFound|is gone", gauges=READING)
    yield Drill("stream-gone-start", "the stream is not found, from the start", gone, heal_all, "not found|no stream|ResourceNotFound", is_at_start=True, gauges=NOT_READY, from_afar=UNSEEN)
    yield Drill("stream-deleted", "the stream is deleted", delete_stream, nothing, "not found|no stream|ResourceNotFound|is gone", is_healed=False, gauges=READING)
    yield Drill("stream-recreated", "the stream is deleted and created again", recreate_stream, nothing, "created again", is_healed=False, gauges=NOT_READY, from_afar="created again")
    yield Drill("kinesis-hangs", "Kinesis does not answer", hang("kinesis"), heal_all, "no answer|take[ns]", gauges=READING)
    yield Drill("kinesis-hangs-start", "Kinesis does not answer, from the start", hang("kinesis"), heal_all, "asking kinesis", is_at_start=True, gauges=NOT_READY, from_afar=UNSEEN)
    yield Drill("kinesis-down", "Kinesis: nothing listens", down("kinesis"), up("kinesis"), "cannot be reached|refused", gauges=READING)
    yield Drill("kinesis-throttled", "Kinesis throttled forever", answer("kinesis", "ProvisionedThroughputExceededException", "Rate exceeded for shard"), heal_all, "throttle|Rate exceeded|ProvisionedThroughput", gauges=READING)
    yield Drill("kinesis-500", "Kinesis: 500", answer("kinesis", "InternalFailure", "internal failure"), heal_all, "InternalFailure|internal failure", gauges=READING)


def all_of_aws():
    yield Drill("token-expired", "the session token has expired", lambda scene: [answer(name, *EXPIRED)(scene) for name in ("kinesis", "dynamodb")], heal_all, "ExpiredToken|expired", gauges=NOT_READY, from_afar=UNSEEN)
    yield Drill("token-expired-start", "the session token has expired, from the start", lambda scene: [answer(name, *EXPIRED)(scene) for name in ("kinesis", "dynamodb")], heal_all, "ExpiredToken|expired", is_at_start=True, gauges=NOT_READY, from_afar=UNSEEN)
    yield Drill("role-gone", "the role stops giving credentials", set_role(True), set_role(False), "credential", prepare=by_role, lasts_seconds=20, gauges=NOT_READY, from_afar=UNSEEN)
    yield Drill("role-gone-start", "the role gives no credentials, from the start", set_role(True), set_role(False), "credential", prepare=by_role, is_at_start=True, gauges=NOT_READY, from_afar=UNSEEN)
    yield Drill("network-gone", "AWS does not answer", hang("kinesis", "dynamodb"), heal_all, "no answer|take[ns]", gauges=NOT_READY, from_afar=UNSEEN)
    if os.geteuid() == 0:
        yield Drill("dns", "names do not resolve", forget_names, know_names, "resolve|dns|lookup", prepare=by_name, gauges=NOT_READY, from_afar=UNSEEN)
        yield Drill("dns-start", "names do not resolve, from the start", forget_names, know_names, "resolve|dns|lookup", prepare=by_name, is_at_start=True, gauges=NOT_READY, from_afar=UNSEEN)


# One of each kind, for CI: a sink that is down, slow, silent or refuses; a right refused for each service; no credentials; no
# stream, for a while and for good.
SAMPLE = (
    "http-down", "http-slow", "http-hangs", "http-401", "lease-updateitem", "getrecords", "role-gone", "stream-gone", "stream-deleted",
)


def all_drills():
    return [*sinks(), *tables(), *streams(), *all_of_aws()]


def sample():
    return [drill for drill in all_drills() if drill.name in SAMPLE]
