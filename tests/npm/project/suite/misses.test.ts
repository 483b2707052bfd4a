import { describe, expect } from "vitest";
import { test } from "mrtr-cassette/vitest";

import { call } from "./client.js";

describe.concurrent("by one cassette", () => {
  test.override({ cassetteOptions: { file: process.env["RECORDED"] } });

  test("swallows the miss", async ({ cassette }) => {
    await call(cassette.url, "deploy", { env: "production" }, "decline").catch(() => {});
  });

  test("throws the miss", async ({ cassette }) => {
    await call(cassette.url, "deploy", { env: "production" }, "decline");
  });

  test("answers as recorded", async ({ cassette, expect }) => {
    const said = await call(cassette.url, "deploy", { env: "production" });
    expect(said).toBe("Deployed to production");
  });
});

describe("by cassettes of their own", () => {
  for (const title of ["not recorded", "of one title", "of one title"]) {
    test(title, async ({ cassette }) => {
      expect(cassette.mode).toBe("none");
    });
  }
});
