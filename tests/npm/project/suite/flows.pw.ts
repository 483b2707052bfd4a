import { expect, test } from "mrtr-cassette/playwright";

import { call } from "./client.js";

const upstream = process.env["UPSTREAM"];
test.use({ cassetteOptions: { upstream } });

test.describe("deploy", () => {
  test("accepts", async ({ cassette }) => {
    const said = await call(cassette.url, "deploy", { env: "production" });
    expect(said).toBe("Deployed to production");
  });
});

test.describe("by another's cassette", () => {
  test.use({ cassetteOptions: { file: process.env["RECORDED"] } });

  test("swallows the miss", async ({ cassette }) => {
    await call(cassette.url, "deploy", { env: "production" }, "decline").catch(() => {});
  });
});
