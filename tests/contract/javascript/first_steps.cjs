// First steps with @azure/batch: reads { endpoint, account, key } from its argument, prints what it saw as JSON.
"use strict";
const { BatchServiceClient, BatchSharedKeyCredentials } = require("@azure/batch");

const { endpoint, account, key } = JSON.parse(process.argv[2]);
const batch = new BatchServiceClient(new BatchSharedKeyCredentials(account, key), endpoint);
const image = { publisher: "microsoft-dsvm", offer: "ubuntu-hpc", sku: "2204" };
const machine = { imageReference: image, nodeAgentSKUId: "batch.node.ubuntu 22.04" };
const saw = { apiVersion: batch.apiVersion };

async function until(holds) {
  for (;;) {
    const found = await holds();
    if (found) return found;
    await new Promise((wake) => setTimeout(wake, 20));
  }
}

async function text(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return Buffer.concat(parts).toString();
}

async function refusal(promise) {
  try {
    await promise;
  } catch (error) {
    return [error.statusCode, error.code];
  }
  return null;
}

async function pools() {
  await batch.pool.add({
    id: "pool",
    vmSize: "standard_d2_v3",
    targetDedicatedNodes: 1,
    virtualMachineConfiguration: machine,
  });
  saw.pools = (await batch.pool.list()).map((pool) => pool.id);
  saw.exists = (await batch.pool.exists("pool")).body;
  saw.poolExists = await refusal(
    batch.pool.add({ id: "pool", vmSize: "standard_d2_v3", virtualMachineConfiguration: machine }),
  );
  const nodes = await until(async () => {
    const found = await batch.computeNode.list("pool");
    return found.length === 1 && found[0].state === "idle" && found;
  });
  saw.nodeIsShown = (await batch.computeNode.get("pool", nodes[0].id)).id === nodes[0].id;
  await until(async () => (await batch.pool.get("pool")).allocationState === "steady");
  await batch.pool.patch("pool", { metadata: [{ name: "a", value: "b" }] });
  const patched = await batch.pool.get("pool");
  saw.metadata = patched.metadata;
  saw.poolNotFound = await refusal(batch.pool.get("nowhere"));
}

async function tasks() {
  await batch.job.add({ id: "job", poolInfo: { poolId: "pool" } });
  await batch.task.add("job", { id: "task", commandLine: "print hello" });
  const more = [1, 2, 3].map((number) => ({ id: `more${number}`, commandLine: "exit 3" }));
  saw.collection = (await batch.task.addCollection("job", more)).value.map((one) => one.status.toLowerCase());
  const ended = await until(async () => {
    const counts = (await batch.job.getTaskCounts("job")).taskCounts;
    return counts.completed === 4 && counts;
  });
  saw.counts = [ended.succeeded, ended.failed];
  saw.exitCode = (await batch.task.get("job", "task")).executionInfo.exitCode;
  const options = { taskListOptions: { filter: "executionInfo/exitCode eq 3", select: "id", maxResults: 2 } };
  const page = await batch.task.list("job", options);
  saw.page = page.map((task) => task.id);
  saw.nextPage = (await batch.task.listNext(page.odatanextLink)).map((task) => task.id);
}

async function files() {
  saw.file = await text((await batch.file.getFromTask("job", "task", "stdout.txt")).readableStreamBody);
  const range = { fileGetFromTaskOptions: { ocpRange: "bytes=1-3" } };
  saw.range = await text((await batch.file.getFromTask("job", "task", "stdout.txt", range)).readableStreamBody);
  saw.length = (await batch.file.getPropertiesFromTask("job", "task", "stdout.txt")).contentLength;
  saw.files = (await batch.file.listFromTask("job", "task")).map((file) => file.name);
}

async function endings() {
  await batch.job.disable("job", "requeue");
  await until(async () => (await batch.job.get("job")).state === "disabled");
  await batch.job.enable("job");
  await batch.job.terminate("job", { jobTerminateOptions: {}, terminateReason: "enough" });
  saw.ended = await until(async () => {
    const job = await batch.job.get("job");
    return job.state === "completed" && job.executionInfo.terminateReason;
  });
  await batch.job.deleteMethod("job");
  await batch.pool.resize("pool", { targetDedicatedNodes: 2 });
  saw.resized = await until(async () => (await batch.computeNode.list("pool")).length === 2);
  await batch.pool.deleteMethod("pool");
  saw.left = await until(async () => (await refusal(batch.pool.get("pool"))) && (await batch.pool.list()).length === 0);
}

pools()
  .then(tasks)
  .then(files)
  .then(endings)
  .then(
    () => console.log(JSON.stringify(saw)),
    (error) => {
      console.error(error.statusCode, error.code, error);
      process.exitCode = 1;
    },
  );
