import { expect } from "vitest";
import { test } from "mrtr-cassette/vitest";

import { call } from "../client.js";

test("passes", async ({ cassette }) => {
  expect(await call(cassette.url, "add", { a: 1, b: 2 })).toBe("3");
});

test("skips itself", async ({ cassette, skip }) => {
  await call(cassette.url, "add", { a: 1, b: 2 });
  skip();
});

test.fails("fails as expected", async ({ cassette }) => {
  expect(await call(cassette.url, "add", { a: 1, b: 2 })).toBe("4");
});

test.fails("should have failed", async ({ cassette }) => {
  expect(await call(cassette.url, "add", { a: 1, b: 2 })).toBe("3");
});
