// SPDX-License-Identifier: Apache-2.0
// node group.js ADDRESS TOPIC GROUP IDLE_S
//
// A member of a consumer group: reads until nothing came for a while, commits, leaves, and prints the values it
// read, one a line. tests/clients/groups.py runs several and compares.
'use strict';

const { Kafka, logLevel } = require('kafkajs');

const [address, topic, group, idle] = process.argv.slice(2);
const kafka = new Kafka({ clientId: 'group', brokers: [address], logLevel: logLevel.NOTHING });

async function main() {
  const consumer = kafka.consumer({ groupId: group, sessionTimeout: 10000 });
  const values = [];
  let last = Date.now();
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({
    autoCommitThreshold: 1,
    eachMessage: async ({ message }) => {
      values.push(message.value.toString());
      last = Date.now();
    },
  });
  while (Date.now() - last < Number(idle) * 1000) {
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  await consumer.disconnect();
  process.stdout.write(values.map((value) => `${value}\n`).join(''));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
