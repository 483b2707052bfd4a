import { expect, test } from "mrtr-cassette/playwright";

import { call } from "../client.js";

const upstream = process.env["UPSTREAM"];
test.use({ cassetteOptions: { upstream } });

test("passes", async ({ cassette }) => {
  expect(await call(cassette.url, "add", { a: 1, b: 2 })).toBe("3");
});

test("skips itself", async ({ cassette }) => {
  await call(cassette.url, "add", { a: 1, b: 2 });
  test.skip();
});

test("fails as expected", async ({ cassette }) => {
  test.fail();
  expect(await call(cassette.url, "add", { a: 1, b: 2 })).toBe("4");
});

test("should have failed", async ({ cassette }) => {
  test.fail();
  expect(await call(cassette.url, "add", { a: 1, b: 2 })).toBe("3");
});
