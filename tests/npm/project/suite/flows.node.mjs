import assert from "node:assert/strict";
import { describe, it, test } from "node:test";

import { cassetteOf } from "mrtr-cassette/node-test";

import { call } from "./client.js";

const upstream = process.env["UPSTREAM"];

describe("deploy", () => {
  it("accepts", async (t) => {
    const { url } = await cassetteOf(t, { upstream });
    assert.equal(await call(url, "deploy", { env: "production" }), "Deployed to production");
  });

  it("declines", async (t) => {
    const { url } = await cassetteOf(t, { upstream });
    const said = await call(url, "deploy", { env: "production" }, "decline");
    assert.equal(said, "Deployment cancelled");
  });
});

test("two rounds", async (t) => {
  const { url } = await cassetteOf(t, { upstream });
  assert.equal(await call(url, "wipe-cache", {}), "Wiped sessions");
});
