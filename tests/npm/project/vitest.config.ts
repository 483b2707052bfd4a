import { defineConfig } from "vitest/config";

const upstream = process.env["UPSTREAM"];

export default defineConfig({
  test: {
    globalSetup: ["mrtr-cassette/vitest/global-setup"],
    provide: { cassetteOptions: upstream === undefined ? {} : { upstream } },
    testTimeout: 120_000,
  },
});
