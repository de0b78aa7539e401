// SPDX-License-Identifier: Apache-2.0
// node check.js ADDRESS TOPIC RECORDS
//
// Goal: kafkajs produces to the broker and its admin client administers it.
// Method: the admin creates a topic (and is told so when it does it twice), producers send records with and
// without compression and idempotence, with keys, headers and times; the admin then reads offsets at both ends
// and by time, describes the topic, creates and deletes another. The last line printed is the SHA-256 of
// each partition's values, which tests/clients/node.py compares with what another client reads (kafkajs
// itself reads only in groups).
'use strict';

const assert = require('assert');
const crypto = require('crypto');
const { CompressionTypes, Kafka, logLevel } = require('kafkajs');

const PARTITIONS = 2;
const CHUNK = 500; // records of one send
const VALUE_BYTES_MAX = 1500;
const START_MS = Date.now() - 3600 * 1000;

const [address, topic, records] = process.argv.slice(2);
const count = Number(records);
const kafka = new Kafka({ clientId: 'check', brokers: [address], logLevel: logLevel.ERROR });
const pool = crypto.randomBytes(1 << 20).toString('hex');

// Record i of the test: partition i modulo their number, one millisecond after the one before.
function record(i) {
  const size = 1 + ((i * 7919) % VALUE_BYTES_MAX);
  const at = (i * 104729) % (pool.length - size);
  return {
    key: String(i),
    value: pool.slice(at, at + size),
    partition: i % PARTITIONS,
    timestamp: String(START_MS + i),
    headers: { number: String(i) },
  };
}

async function produce(options, sendOptions, from, to, sums) {
  const producer = kafka.producer(options);
  await producer.connect();
  for (let i = from; i < to; i += CHUNK) {
    const messages = [];
    for (let j = i; j < Math.min(i + CHUNK, to); j++) {
      const made = record(j);
      messages.push(made);
      sums[made.partition].update(made.value);
    }
    const answers = await producer.send({ topic, messages, acks: -1, ...sendOptions });
    assert(answers.every((answer) => answer.errorCode === 0), JSON.stringify(answers));
  }
  await producer.disconnect();
}

async function checkTopics(admin) {
  const topics = [{ topic, numPartitions: PARTITIONS, replicationFactor: 1 }];
  assert.strictEqual(await admin.createTopics({ topics, waitForLeaders: true }), true);
  assert.strictEqual(await admin.createTopics({ topics }), false, 'created twice');
  const other = `${topic}-other`;
  await admin.createTopics({ topics: [{ topic: other, numPartitions: 1 }], waitForLeaders: true });
  assert((await admin.listTopics()).includes(other));
  const cluster = await admin.describeCluster();
  assert.strictEqual(cluster.brokers.length, 1);
  const described = await admin.fetchTopicMetadata({ topics: [topic] });
  assert.strictEqual(described.topics[0].partitions.length, PARTITIONS);
  assert(described.topics[0].partitions.every((one) => one.leader === cluster.brokers[0].nodeId));
  await admin.deleteTopics({ topics: [other] });
  assert(!(await admin.listTopics()).includes(other));
}

async function checkOffsets(admin) {
  const each = count / PARTITIONS;
  const ends = await admin.fetchTopicOffsets(topic);
  assert.strictEqual(ends.length, PARTITIONS);
  for (const end of ends) {
    assert.deepStrictEqual([end.low, end.high], ['0', String(each)], `partition ${end.partition}`);
  }
  // A time just above a record of partition 0: the next one there, PARTITIONS milliseconds later.
  const middle = Math.floor(each / 2);
  const at = START_MS + (middle - 1) * PARTITIONS + 1;
  const found = await admin.fetchTopicOffsetsByTimestamp(topic, at);
  const first = found.find((one) => one.partition === 0);
  assert.strictEqual(first.offset, String(middle), `offset at ${at}`);
}

async function main() {
  const sums = Array.from({ length: PARTITIONS }, () => crypto.createHash('sha256'));
  const admin = kafka.admin();
  await admin.connect();
  await checkTopics(admin);
  const third = Math.floor(count / 3 / PARTITIONS) * PARTITIONS;
  await produce({}, {}, 0, third, sums);
  await produce({}, { compression: CompressionTypes.GZIP }, third, 2 * third, sums);
  await produce({ idempotent: true, maxInFlightRequests: 1 }, {}, 2 * third, count, sums);
  await checkOffsets(admin);
  await admin.disconnect();
  console.log(sums.map((sum) => sum.digest('hex')).join(' '));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
