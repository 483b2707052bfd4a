/** A program whose server is killed during a play. */

import { existsSync, readFileSync } from "node:fs";

import { cassette } from "mrtr-cassette";

const tape = await cassette({ file: process.env["RECORDED"] ?? "" });
const pids = process.env["STARTS"] ?? "";
if (existsSync(pids)) process.kill(Number(readFileSync(pids, "utf8")), "SIGKILL");
try {
  await tape.end();
} catch (error) {
  console.log(String(error));
}
