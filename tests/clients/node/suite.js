// SPDX-License-Identifier: Apache-2.0
// node suite.js ADDRESS [CHECK...]
//
// Goal: what kafkajs offers of groups, transactions, administration and times works as with Kafka.
// Method: its package holds no tests, so these are checks of our own. Each has topics and groups of its own and
// runs beside others; what one client did another one looks at. A line for each: its name, what it tries, and
// "works" or what went wrong. tests/clients/node_suite.py makes the table of them.
'use strict';

const assert = require('assert');
const { AsyncLocalStorage } = require('async_hooks');
const {
  AclOperationTypes, AclPermissionTypes, AclResourceTypes, AssignerProtocol, CompressionTypes, ConfigResourceTypes,
  Kafka, KafkaJSError, ResourcePatternTypes, logLevel,
} = require('kafkajs');

const PARTITIONS = 4;
const COUNT = 200;
const LIMIT_MS = 60000;
const HOUR_MS = 3600 * 1000;

const [address, ...words] = process.argv.slice(2);
const kafka = new Kafka({ clientId: 'suite', brokers: [address], logLevel: logLevel.NOTHING });
// Each check's own client: two that share one lose each other's topics, because a refresh of its metadata that
// began before a topic was named replaces what the other call has just learned.
const admins = new AsyncLocalStorage();
const admin = new Proxy({}, { get: (_, name) => admins.getStore()[name] });
const range = (from, to) => Array.from({ length: to - from }, (_, i) => from + i);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// --- small things ------------------------------------------------------------------------------

async function wait(what, condition) {
  const deadline = Date.now() + LIMIT_MS;
  while (!(await condition())) {
    assert(Date.now() < deadline, what);
    await sleep(50);
  }
}

// What the broker refused an action with, as Kafka's name of the error.
async function fault(action) {
  try {
    await action();
  } catch (error) {
    const [first] = error.errors || (error.groups && error.groups.map((one) => one.error)) || [error];
    return first.type || (first.cause && first.cause.type) || first.message;
  }
  throw new Error('it was not refused');
}

async function create(topic, numPartitions = PARTITIONS, config = {}) {
  const configEntries = Object.entries(config).map(([name, value]) => ({ name, value }));
  await admin.createTopics({ topics: [{ topic, numPartitions, configEntries }], waitForLeaders: true });
  return topic;
}

const message = (number, partitions = PARTITIONS) =>
  ({ key: String(number % 7), value: String(number), partition: number % partitions });

async function withProducer(options, use) {
  const producer = kafka.producer(options);
  await producer.connect();
  try {
    return await use(producer);
  } finally {
    await producer.disconnect();
  }
}

const fill = (topic, from, to, partitions = PARTITIONS, more = {}) => withProducer({}, (producer) =>
  producer.send({ topic, messages: range(from, to).map((number) => message(number, partitions)), ...more }));

// A member of a group: what it got, and its partitions.
class Member {
  constructor(group, options = {}) {
    this.got = [];
    this.mine = [];
    this.joins = 0;
    this.consumer = kafka.consumer({
      groupId: group, sessionTimeout: 10000, heartbeatInterval: 300, rebalanceTimeout: 15000,
      maxWaitTimeInMs: 200, retry: { retries: 20, initialRetryTime: 100 }, ...options,
    });
    this.consumer.on(this.consumer.events.GROUP_JOIN, ({ payload }) => {
      this.joins += 1;
      this.mine = Object.values(payload.memberAssignment).flat();
    });
  }

  async start(topics, run = {}, fromBeginning = true) {
    await this.consumer.connect();
    await this.consumer.subscribe({ topics: [topics].flat(), fromBeginning });
    await this.consumer.run({
      eachMessage: async ({ topic, partition, message: one }) => {
        this.got.push({ topic, partition, offset: Number(one.offset), number: Number(one.value), one });
      },
      ...run,
    });
    return this;
  }

  numbers() {
    return [...new Set(this.got.map((one) => one.number))].sort((a, b) => a - b);
  }

  has(from, to) {
    const mine = new Set(this.numbers());
    return range(from, to).every((number) => mine.has(number));
  }

  leave() {
    return this.consumer.disconnect();
  }
}

// All numbers that a reader of this level sees: it is led on until the topic's end is seen.
async function read(topic, readUncommitted = false) {
  const group = `read-${topic}-${Math.random()}`;
  const reader = new Member(group, { readUncommitted });
  const ends = await admin.fetchTopicOffsets(topic);
  const seen = new Map();
  await reader.start(topic, {
    eachBatchAutoResolve: true,
    eachMessage: undefined,
    eachBatch: async ({ batch }) => {
      for (const one of batch.messages) {
        reader.got.push({ number: Number(one.value) });
      }
      seen.set(batch.partition, Number(batch.lastOffset()) + 1);
    },
  });
  // Behind a transaction's last record is its marker, which no consumer is told of.
  await wait(`${topic}: the end does not come`, () =>
    ends.every((end) => (seen.get(end.partition) || 0) >= Number(end.high) - 1 || end.high === '0'));
  await sleep(500);
  await reader.leave();
  return reader.numbers();
}

async function committed(group, topic, partition = 0) {
  const told = await admin.fetchOffsets({ groupId: group, topics: [topic] });
  return Number(told[0].partitions.find((one) => one.partition === partition).offset);
}

// --- groups --------------------------------------------------------------------------------------

async function share() {
  const topic = await create('groups-share');
  await fill(topic, 0, COUNT);
  const members = [new Member(topic), new Member(topic)];
  await Promise.all(members.map((one) => one.start(topic)));
  await wait('partitions are not shared', () => members.every((one) => one.mine.length === PARTITIONS / 2));
  await wait('records are missing', () =>
    new Set([...members[0].numbers(), ...members[1].numbers()]).size === COUNT);
  await members[0].leave();
  await wait('its partitions are nobody\'s', () => members[1].mine.length === PARTITIONS);
  await fill(topic, COUNT, 2 * COUNT);
  await wait('later records are missing', () => members[1].has(COUNT, 2 * COUNT));
  await members[1].leave();
}

async function offsets() {
  const topic = await create('groups-offsets', 1);
  await fill(topic, 0, COUNT, 1);
  const first = await new Member(topic).start(topic, { autoCommit: false });
  await wait('records are missing', () => first.has(0, COUNT));
  assert.strictEqual(await committed(topic, topic), -1);
  await first.consumer.commitOffsets([{ topic, partition: 0, offset: '40', metadata: 'here it was' }]);
  const told = await admin.fetchOffsets({ groupId: topic, topics: [topic] });
  assert.deepStrictEqual(told[0].partitions, [{ partition: 0, offset: '40', metadata: 'here it was' }]);
  await first.leave();
  const second = await new Member(topic).start(topic, { autoCommitThreshold: 1 });
  await wait('records are missing', () => second.has(40, COUNT));
  assert(second.numbers()[0] === 40, `began at ${second.numbers()[0]}`);
  second.got = [];
  second.consumer.seek({ topic, partition: 0, offset: '150' });
  await wait('it does not go back', () => second.has(150, COUNT));
  assert(second.numbers()[0] === 150, `went back to ${second.numbers()[0]}`);
  await second.leave();
  assert.strictEqual(await committed(topic, topic), COUNT);
}

async function pauses() {
  const topic = await create('groups-pause', 1);
  const reader = await new Member(topic).start(topic);
  await wait('it has no partitions', () => reader.mine.length === 1);
  reader.consumer.pause([{ topic }]);
  await fill(topic, 0, COUNT, 1);
  await sleep(1500);
  assert(reader.got.length === 0, `${reader.got.length} records while it paused`);
  reader.consumer.resume([{ topic }]);
  await wait('records are missing', () => reader.has(0, COUNT));
  await reader.leave();
}

async function patterns() {
  await create('groups-pattern-1', 1);
  await create('groups-pattern-2', 1);
  await fill('groups-pattern-1', 0, COUNT, 1);
  await fill('groups-pattern-2', COUNT, 2 * COUNT, 1);
  const reader = await new Member('groups-pattern').start(/^groups-pattern-[0-9]+$/);
  await wait('records are missing', () => reader.has(0, 2 * COUNT));
  await reader.leave();
}

async function described() {
  const topic = await create('groups-described');
  const reader = await new Member(topic).start(topic);
  await wait('it has no partitions', () => reader.mine.length === PARTITIONS);
  const own = await reader.consumer.describeGroup();
  assert.deepStrictEqual([own.groupId, own.state, own.protocolType, own.members.length],
    [topic, 'Stable', 'consumer', 1]);
  const { groups } = await admin.describeGroups([topic]);
  assert.strictEqual(groups[0].members[0].clientId, 'suite');
  const assignment = AssignerProtocol.MemberAssignment.decode(groups[0].members[0].memberAssignment);
  assert.strictEqual(assignment.assignment[topic].length, PARTITIONS);
  assert((await admin.listGroups()).groups.some((one) => one.groupId === topic));
  assert.strictEqual(await fault(() => admin.deleteGroups([topic])), 'NON_EMPTY_GROUP');
  await reader.leave();
  await admin.deleteGroups([topic]);
  assert(!(await admin.listGroups()).groups.some((one) => one.groupId === topic));
  assert.strictEqual(await fault(() => admin.deleteGroups([topic])), 'GROUP_ID_NOT_FOUND');
}

async function resets() {
  const topic = await create('groups-resets', 1);
  await fill(topic, 0, COUNT, 1);
  await admin.setOffsets({ groupId: topic, topic, partitions: [{ partition: 0, offset: '120' }] });
  assert.strictEqual(await committed(topic, topic), 120);
  const first = await new Member(topic).start(topic);
  await wait('records are missing', () => first.has(120, COUNT));
  assert(first.numbers()[0] === 120, `began at ${first.numbers()[0]}`);
  await first.leave();
  await admin.resetOffsets({ groupId: topic, topic, earliest: true });
  const second = await new Member(topic).start(topic);
  await wait('records are missing', () => second.has(0, COUNT));
  await second.leave();
}

// --- transactions --------------------------------------------------------------------------------

const transactional = (id) => ({ transactionalId: id, idempotent: true, maxInFlightRequests: 1 });
const send = (transaction, topic, from, to) =>
  transaction.send({ topic, messages: range(from, to).map((number) => message(number)) });

async function ends() {
  const topic = await create('transactions-ends');
  await withProducer(transactional(topic), async (producer) => {
    for (const [from, commit] of [[0, true], [COUNT, false], [2 * COUNT, true]]) {
      const transaction = await producer.transaction();
      await send(transaction, topic, from, from + COUNT);
      await (commit ? transaction.commit() : transaction.abort());
    }
  });
  assert.deepStrictEqual(await read(topic), [...range(0, COUNT), ...range(2 * COUNT, 3 * COUNT)]);
  assert.deepStrictEqual(await read(topic, true), range(0, 3 * COUNT));
}

async function fenced() {
  const topic = await create('transactions-fenced');
  await withProducer(transactional(topic), async (old) => {
    const lost = await old.transaction();
    await send(lost, topic, 0, COUNT);
    await withProducer(transactional(topic), async (young) => {
      const transaction = await young.transaction(); // not before it asks for the id
      const why = await fault(() => lost.commit());
      assert(['INVALID_PRODUCER_EPOCH', 'PRODUCER_FENCED'].includes(why), why);
      await send(transaction, topic, COUNT, 2 * COUNT);
      await transaction.commit();
    });
  });
  assert.deepStrictEqual(await read(topic), range(COUNT, 2 * COUNT));
}

// Offsets of a group that a transaction carries are the group's when it is committed only.
async function offsetsInside() {
  const topic = await create('transactions-offsets', 1);
  const group = 'transactions-offsets';
  await withProducer(transactional(topic), async (producer) => {
    for (const [offset, commit, want] of [['7', true, 7], ['9', false, 7], ['11', true, 11]]) {
      const transaction = await producer.transaction();
      await transaction.send({ topic, messages: [{ value: offset }] });
      await transaction.sendOffsets({
        consumerGroupId: group, topics: [{ topic, partitions: [{ partition: 0, offset }] }],
      });
      await (commit ? transaction.commit() : transaction.abort());
      await wait(`not ${want}`, async () => (await committed(group, topic)) === want);
    }
  });
}

async function idempotent() {
  const topic = await create('transactions-idempotent', 1);
  await withProducer({ idempotent: true, maxInFlightRequests: 1 }, async (producer) => {
    const sent = range(0, 20).map((round) => producer.send({
      topic, messages: range(round * 50, round * 50 + 50).map((number) => message(number, 1)),
    }));
    const bases = (await Promise.all(sent)).map((answers) => Number(answers[0].baseOffset));
    assert.deepStrictEqual([...bases].sort((a, b) => a - b), range(0, 20).map((round) => round * 50));
  });
  assert.deepStrictEqual(await read(topic), range(0, 1000));
}

// --- administration ------------------------------------------------------------------------------

async function topics() {
  const topic = await create('admin-topics', 2, { 'retention.ms': '123456' });
  assert.strictEqual(await admin.createTopics({ topics: [{ topic }] }), false, 'created twice');
  const refused = [
    [{ topic: 'bad/name' }, 'INVALID_TOPIC_EXCEPTION'],
    [{ topic: 'admin-replicas', replicationFactor: 9 }, 'INVALID_REPLICATION_FACTOR'],
    [{ topic: 'admin-config', configEntries: [{ name: 'retention.ms', value: 'long' }] }, 'INVALID_CONFIG'],
  ];
  for (const [wrong, why] of refused) {
    assert.strictEqual(await fault(() => admin.createTopics({ topics: [wrong] })), why);
  }
  await admin.createTopics({ validateOnly: true, waitForLeaders: false, topics: [{ topic: 'admin-only-checked' }] });
  assert(!(await admin.listTopics()).includes('admin-only-checked'));
  await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] });
  await wait('partitions do not come', async () =>
    (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length === 5);
  const why = await fault(() => admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] }));
  assert.strictEqual(why, 'INVALID_PARTITIONS');
  await admin.deleteTopics({ topics: [topic] });
  assert(!(await admin.listTopics()).includes(topic));
  assert.strictEqual(await fault(() => admin.deleteTopics({ topics: [topic] })), 'UNKNOWN_TOPIC_OR_PARTITION');
}

async function configs() {
  const topic = await create('admin-configs', 1, { 'retention.ms': '123456' });
  const one = { type: ConfigResourceTypes.TOPIC, name: topic };
  const look = async (names) => {
    const told = await admin.describeConfigs({ includeSynonyms: true, resources: [{ ...one, configNames: names }] });
    return Object.fromEntries(told.resources[0].configEntries.map((entry) => [entry.configName, entry]));
  };
  let now = await look(['retention.ms', 'segment.bytes']);
  assert.deepStrictEqual(Object.keys(now).sort(), ['retention.ms', 'segment.bytes']);
  assert(now['retention.ms'].configValue === '123456' && !now['retention.ms'].isDefault);
  assert(now['segment.bytes'].isDefault && now['segment.bytes'].configSynonyms.length > 0);
  const alter = (value) => admin.alterConfigs({
    validateOnly: false, resources: [{ ...one, configEntries: [{ name: 'segment.bytes', value }] }],
  });
  await alter('2097152'); // the whole set: what it does not name goes back
  now = await look();
  assert(now['segment.bytes'].configValue === '2097152' && now['retention.ms'].isDefault);
  assert.strictEqual(await fault(() => alter('-3')), 'INVALID_CONFIG');
  const { brokers } = await admin.describeCluster();
  const told = await admin.describeConfigs({
    includeSynonyms: false,
    resources: [{ type: ConfigResourceTypes.BROKER, name: String(brokers[0].nodeId), configNames: ['num.partitions'] }],
  });
  assert.strictEqual(told.resources[0].configEntries[0].configName, 'num.partitions');
}

async function records() {
  const topic = await create('admin-records', 1);
  await fill(topic, 0, COUNT, 1);
  await admin.fetchTopicOffsets(topic); // the client learns the leader: deleteTopicRecords does not ask for it
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '150' }] });
  assert.strictEqual((await admin.fetchTopicOffsets(topic))[0].low, '150');
  assert.deepStrictEqual(await read(topic), range(150, COUNT));
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '-1' }] });
  assert.strictEqual((await admin.fetchTopicOffsets(topic))[0].low, String(COUNT));
}

async function cluster() {
  const topic = await create('admin-cluster');
  const told = await admin.describeCluster();
  assert(told.clusterId && told.brokers.length === 1 && told.controller === told.brokers[0].nodeId);
  const partitions = (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions;
  assert(partitions.length === PARTITIONS && partitions.every((one) => one.isr.length === 1));
  const brokers = told.brokers.map((one) => one.nodeId);
  await admin.alterPartitionReassignments({
    topics: [{ topic, partitionAssignment: [{ partition: 0, replicas: brokers }] }],
  });
  assert.deepStrictEqual((await admin.listPartitionReassignments({})).topics, []);
  const why = await fault(() => admin.alterPartitionReassignments({
    topics: [{ topic, partitionAssignment: [{ partition: 0, replicas: [brokers[0] + 1] }] }],
  }));
  assert(/INVALID_REPLICA_ASSIGNMENT|REASSIGN/.test(why), why);
}

async function security() {
  const acl = {
    resourceType: AclResourceTypes.TOPIC, resourceName: 'any', resourcePatternType: ResourcePatternTypes.LITERAL,
    principal: 'User:someone', host: '*', operation: AclOperationTypes.READ,
    permissionType: AclPermissionTypes.ALLOW,
  };
  assert.strictEqual(await fault(() => admin.createAcls({ acl: [acl] })), 'SECURITY_DISABLED');
  assert.strictEqual(await fault(() => admin.describeAcls(acl)), 'SECURITY_DISABLED');
}

// --- records and times ---------------------------------------------------------------------------

async function times() {
  const topic = await create('times-create', 1);
  const base = Date.now() - HOUR_MS;
  const given = [0, 5000, 2000, 9000, 7000].map((after) => base + after);
  await withProducer({}, async (producer) => {
    for (const [number, when] of given.entries()) { // a batch each
      await producer.send({ topic, messages: [{ value: String(number), timestamp: String(when) }] });
    }
  });
  const reader = await new Member(topic).start(topic);
  await wait('records are missing', () => reader.has(0, given.length));
  assert.deepStrictEqual(reader.got.map((one) => Number(one.one.timestamp)), given);
  await reader.leave();
  const at = async (when) => Number((await admin.fetchTopicOffsetsByTimestamp(topic, when))[0].offset);
  const wanted = [[1, 0], [base, 0], [base + 1, 1], [base + 5000, 1], [base + 5001, 3], [base + 9000, 3]];
  for (const [when, want] of wanted) {
    assert.strictEqual(await at(when), want, `at ${when - base}`);
  }
  assert.strictEqual(await at(base + 9001), given.length); // kafkajs takes the end for it
}

async function appended() {
  const topic = await create('times-append', 1, { 'message.timestamp.type': 'LogAppendTime' });
  const before = Date.now();
  await withProducer({}, (producer) => producer.send({ topic, messages: [{ value: '0', timestamp: '1000' }] }));
  const after = Date.now();
  const reader = await new Member(topic).start(topic);
  await wait('the record is missing', () => reader.has(0, 1));
  const when = Number(reader.got[0].one.timestamp);
  assert(before <= when && when <= after, `${when} is not from ${before} to ${after}`);
  await reader.leave();
}

async function refused() {
  const topic = await create('times-refused', 1, { 'message.timestamp.before.max.ms': String(HOUR_MS) });
  await withProducer({ retry: { retries: 0 } }, async (producer) => {
    const old = { value: '0', timestamp: String(Date.now() - 2 * HOUR_MS) };
    assert.strictEqual(await fault(() => producer.send({ topic, messages: [old] })), 'INVALID_TIMESTAMP');
    await producer.send({ topic, messages: [{ value: '1', timestamp: String(Date.now()) }] });
  });
  assert.deepStrictEqual(await read(topic), [1]);
}

async function contents() {
  const topic = await create('records-contents', 1);
  const headers = { one: 'first', two: ['a', 'b'], empty: '' };
  await withProducer({}, async (producer) => {
    for (const compression of [CompressionTypes.None, CompressionTypes.GZIP]) {
      await producer.send({ topic, compression, messages: [
        { key: 'key', value: 'value', headers }, { key: null, value: 'no key' }, { key: 'tombstone', value: null },
      ] });
    }
  });
  const reader = await new Member(topic).start(topic);
  await wait('records are missing', () => reader.got.length === 6);
  for (const at of [0, 3]) {
    const [whole, bare, gone] = reader.got.slice(at, at + 3).map((one) => one.one);
    assert.strictEqual(String(whole.key) + String(whole.value), 'keyvalue');
    assert.deepStrictEqual([String(whole.headers.one), whole.headers.two.map(String), String(whole.headers.empty)],
      ['first', ['a', 'b'], '']);
    assert(bare.key === null && gone.value === null, 'null is not null');
  }
  await reader.leave();
}

// --- all -----------------------------------------------------------------------------------------

const CHECKS = [
  ['groups: share', 'two members share, one goes', share],
  ['groups: offsets', 'commits with metadata, committed offsets, where the next member begins, seek', offsets],
  ['groups: pause', 'pause and resume', pauses],
  ['groups: pattern', 'a subscription by a regular expression', patterns],
  ['groups: admin', 'list, describe with assignments, delete, and each refusal', described],
  ['groups: resets', 'offsets set and reset by the admin', resets],
  ['transactions: ends', 'commit, abort, and what readers of both levels see', ends],
  ['transactions: fenced', 'a second producer of the id ends the first one\'s', fenced],
  ['transactions: offsets', 'a group\'s offsets, committed and aborted', offsetsInside],
  ['transactions: idempotent', 'each record once', idempotent],
  ['admin: topics', 'create, check only, more partitions, delete, and each refusal', topics],
  ['admin: configs', 'describe by name with synonyms, alter, the broker\'s', configs],
  ['admin: records', 'delete records up to an offset and all', records],
  ['admin: cluster', 'describe, reassignments', cluster],
  ['admin: security', 'ACLs are refused, since security is disabled', security],
  ['times: create', 'times of clients, out of order, and the look-up by them', times],
  ['times: append', 'times of the broker', appended],
  ['times: refused', 'a time beyond the topic\'s range', refused],
  ['records', 'keys, headers, tombstones, plain and gzip', contents],
];

async function main() {
  let broken = false;
  await Promise.all(CHECKS.filter(([name]) => !words.length || words.includes(name)).map(async ([name, what, check]) => {
    const begun = Date.now();
    const own = kafka.admin();
    let said = 'works';
    try {
      await own.connect();
      await admins.run(own, check);
    } catch (error) {
      broken = true;
      const cause = error instanceof KafkaJSError && error.cause ? `\n${error.cause.stack}` : '';
      const parts = error.groups || error.errors ? `\n${JSON.stringify(error.groups || error.errors)}` : '';
      said = `failed: ${(error.stack + cause + parts).replace(/\n/g, '\n    ')}`;
    } finally {
      await own.disconnect();
    }
    console.log(`${name}\t${what}\t${said}`);
    console.error(`${name}: ${(Date.now() - begun) / 1000} s`);
  }));
  process.exit(broken ? 1 : 0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
