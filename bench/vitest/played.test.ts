/** Calls of two rounds, each in a test with a cassette of its own. */

import { expect } from "vitest";
import { test } from "mrtr-cassette/vitest";

import { call } from "../suite/client.js";

for (let number = 0; number < Number(process.env["TESTS"]); number += 1) {
  const env = `environment-${number}`;
  test(`deploys to ${env}`, async ({ cassette }) => {
    expect(await call(cassette.url, "deploy", { env })).toBe(`Deployed to ${env}`);
  });
}
