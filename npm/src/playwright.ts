/** A cassette for each test of Playwright. */

import { test as base, type TestInfo } from "@playwright/test";

import { cassettePath } from "./names.js";
import {
  type CassetteFixtures,
  openPlay,
  type Outcome,
  type TestCassetteOptions,
} from "./play.js";
import { serverFor } from "./server.js";

/** Playwright's `test`; `test.use`, or `use` in the configuration, sets `cassetteOptions`. */
export const test = base.extend<CassetteFixtures>({
  cassetteOptions: [{}, { option: true }],
  cassette: async ({ cassetteOptions }, use, info) => {
    const file = cassetteOptions.file ?? ownCassette(info);
    const play = await openPlay(await serverFor(), { ...cassetteOptions, file });
    await use(play);
    await play.end(outcomeOf(info));
    await play[Symbol.asyncDispose]();
  },
});

export { expect } from "@playwright/test";
export type { CassetteFixtures, TestCassetteOptions };

/** Return the path of the cassette that is named after a test, and its project if there are several. */
function ownCassette({ config, file, project, titlePath }: TestInfo): string {
  const [, ...titles] = titlePath;
  if (config.projects.length > 1 && project.name) titles.unshift(project.name);
  return cassettePath(file, titles.join(" > "));
}

/** Return what has become of a test. */
function outcomeOf({ status, expectedStatus }: TestInfo): Outcome {
  if (status === "skipped") return "skipped";
  if (status !== expectedStatus) return "failed";
  return status === "passed" ? "passed" : "xfailed";
}
