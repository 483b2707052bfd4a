/** A program that runs vitest twice, as its watch mode does when the configuration changes. */

import { startVitest } from "vitest/node";

const [name = "", testNamePattern = ""] = process.argv.slice(2);
for (let runs = 0; runs < 2; runs += 1) {
  const vitest = await startVitest("test", [name], { watch: false, testNamePattern });
  await vitest.close();
}
