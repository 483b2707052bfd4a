import { afterEach, describe, expect, vi } from "vitest";
import { cassette, test } from "mrtr-cassette/vitest";

import { call } from "./client.js";

const environments = ["production", "staging"];

test("adds", async ({ cassette }) => {
  expect(await call(cassette.url, "add", { a: 1, b: 2 })).toBe("3");
});

describe("deploy", () => {
  test.for(environments)("asks before it deploys to %s", async (env, { cassette }) => {
    expect(await call(cassette.url, "deploy", { env })).toBe(`Deployed to ${env}`);
  });

  test("doesn't where the operator says ‚nein‘", async ({ cassette }) => {
    const said = await call(cassette.url, "deploy", { env: "production" }, "decline");
    expect(said).toBe("Deployment cancelled");
  });
});

describe.concurrent("at once", () => {
  test("two rounds", async ({ cassette, expect }) => {
    expect(await call(cassette.url, "wipe-cache", {})).toBe("Wiped sessions");
  });

  test("two rounds, deployed between", async ({ cassette, expect }) => {
    expect(await call(cassette.url, "deploy", { env: "test" })).toBe("Deployed to test");
    expect(await call(cassette.url, "wipe-cache", {})).toBe("Wiped sessions");
  });
});

describe("attempts", () => {
  let attempts = 0;

  test("only the attempt that passes is recorded", { retry: 1 }, async ({ cassette }) => {
    attempts += 1;
    const isFirst = cassette.isRecording && attempts === 1;
    await call(cassette.url, "add", { a: 7, b: isFirst ? 0 : 7 });
    expect(isFirst).toBe(false);
  });
});

describe("in a world that is made up", () => {
  afterEach(() => {
    vi.useRealTimers();
    vi.unstubAllGlobals();
  });

  test("the play goes on", async ({ cassette }) => {
    await call(cassette.url, "add", { a: 5, b: 5 });
    vi.useFakeTimers();
    vi.stubGlobal("fetch", () => Promise.reject(new Error("made up")));
    const { served, recorded } = await cassette.report();
    expect(served + recorded).toBeGreaterThan(0);
  });
});

describe("on pipes", () => {
  const server = process.env["STDIO_SERVER"];
  const upstream = server === undefined ? undefined : ["node", server, "--stdio"];
  test.override({ cassetteOptions: { upstream } });

  test("the client starts a command", async ({ cassette }) => {
    expect(() => cassette.url).toThrow("`command`");
    expect(await call(cassette.command, "add", { a: 20, b: 3 })).toBe("23");
  });
});

test("a second cassette beside the test's own", async ({ cassette: first }) => {
  await using second = await cassette({ file: "suite/cassettes/second" });
  expect(() => second.command).toThrow("`url`");
  expect(await call(first.url, "add", { a: 1, b: 1 })).toBe("2");
  expect(await call(second.url, "add", { a: 2, b: 2 })).toBe("4");
  expect((await second.report()).misses).toEqual([]);
});
