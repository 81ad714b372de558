// Writes one line for each flight that lifion-kinesis delivers. Where it is and how, it finds in variables:
//
// CHECKPOINTS=own   as a careful program does: it pauses, handles, checkpoints, and then asks for more
// CHECKPOINTS=auto  the library's default: it checkpoints before it delivers

"use strict";

const fs = require("fs");
const Kinesis = require("lifion-kinesis");

const { APPLICATION, CHECKPOINTS, DYNAMODB_ENDPOINT, KINESIS_ENDPOINT, OUT, STREAM } = process.env;
const HANDLE_MILLISECONDS = 300;
// A careful program checkpoints now and then, since each checkpoint is a write to the one item of all shards.
const BATCHES_PER_CHECKPOINT = 5;
const LIMIT = 50;

const out = fs.openSync(OUT, "a");
const own = CHECKPOINTS === "own";
const batches = {};
let busy = 0;
let stops = false;

const kinesis = new Kinesis({
  region: process.env.AWS_REGION,
  endpoint: KINESIS_ENDPOINT,
  streamName: STREAM,
  consumerGroup: APPLICATION,
  createStreamIfNeeded: false,
  initialPositionInStream: "TRIM_HORIZON",
  limit: LIMIT,
  pollDelay: 100,
  useAutoCheckpoints: !own,
  usePausedPolling: own,
  dynamoDb: { endpoint: DYNAMODB_ENDPOINT, region: process.env.AWS_REGION, tableName: "lifion-kinesis-state" },
  logger: { debug: () => {}, warn: console.error, error: console.error },
});

async function handle({ records, shardId, setCheckpoint, continuePolling }) {
  busy += 1;
  await new Promise((done) => setTimeout(done, HANDLE_MILLISECONDS));
  const lines = records.map(({ sequenceNumber, data }) =>
    JSON.stringify({ shard: shardId, sequence_number: sequenceNumber, carrier: data.carrier }),
  );
  fs.writeSync(out, lines.join("\n") + "\n");
  if (own) {
    batches[shardId] = (batches[shardId] || 0) + 1;
    // If the last records of a closed shard come without a next iterator, the library reads again from the checkpoint.
    const isLast = records.length < LIMIT;
    if (stops || isLast || batches[shardId] % BATCHES_PER_CHECKPOINT === 0) {
      await setCheckpoint(records[records.length - 1].sequenceNumber);
    }
  }
  busy -= 1;
  // After `stopConsumer` the library would go on polling if it were asked to.
  if (own && !stops) continuePolling();
}

kinesis.on("data", (batch) => handle(batch).catch(fail));
kinesis.on("error", fail);
kinesis.startConsumer().catch(fail);

function fail(error) {
  console.error(error);
  process.exit(1);
}

process.on("SIGTERM", () => {
  stops = true;
  try {
    kinesis.stopConsumer();
  } catch (error) {
    // It stops a consumer that is not there any more, once a shard has ended.
    console.error(error);
  }
  // The library does not tell when its last poll is over, and after that one it may go on polling.
  if (own) setInterval(() => busy === 0 && process.exit(0), 1000);
  else setTimeout(() => process.exit(0), 2000);
});
