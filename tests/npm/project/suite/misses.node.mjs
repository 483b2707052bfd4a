import assert from "node:assert/strict";
import { test } from "node:test";

import { cassetteOf } from "mrtr-cassette/node-test";

import { call } from "./client.js";

const file = process.env["RECORDED"];

test("swallows the miss", async (t) => {
  const { url } = await cassetteOf(t, { file });
  await call(url, "deploy", { env: "production" }, "decline").catch(() => {});
});

test("fails by another reason, and has a miss", async (t) => {
  const { url } = await cassetteOf(t, { file });
  await call(url, "deploy", { env: "elsewhere" }).catch(() => {});
  assert.fail("another reason");
});

test("answers as recorded", async (t) => {
  const { url } = await cassetteOf(t, { file });
  assert.equal(await call(url, "deploy", { env: "production" }), "Deployed to production");
});
