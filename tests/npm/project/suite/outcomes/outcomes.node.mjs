import assert from "node:assert/strict";
import { test } from "node:test";

import { cassetteOf } from "mrtr-cassette/node-test";

import { call } from "../client.js";

const upstream = process.env["UPSTREAM"];

test("passes", async (t) => {
  const { url } = await cassetteOf(t, { upstream });
  assert.equal(await call(url, "add", { a: 1, b: 2 }), "3");
});

test("skips itself", async (t) => {
  const { url } = await cassetteOf(t, { upstream });
  await call(url, "add", { a: 1, b: 2 });
  t.skip("not here");
});

for (const sum of ["3", "4"]) {
  test("of one title", async (t) => {
    const { url } = await cassetteOf(t, { upstream });
    assert.equal(await call(url, "add", { a: 1, b: Number(sum) - 1 }), sum);
  });
}
