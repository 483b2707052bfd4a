/** A program whose server can't be started at first, and is killed during a play. */

import { existsSync, readFileSync } from "node:fs";

import { cassette } from "mrtr-cassette";

const file = process.env["RECORDED"] ?? "";
const program = process.env["MRTR_CASSETTE_BIN"];

process.env["MRTR_CASSETTE_BIN"] = "nowhere";
try {
  await cassette({ file });
} catch (error) {
  console.log(String(error).split("\n")[0]);
}

process.env["MRTR_CASSETTE_BIN"] = program;
const tape = await cassette({ file });
const pids = process.env["STARTS"] ?? "";
if (existsSync(pids)) process.kill(Number(readFileSync(pids, "utf8")), "SIGKILL");
try {
  await tape.end();
} catch (error) {
  console.log(String(error));
}

const next = await cassette({ file });
console.log(next.cassette);
await next.end();
