/** A cassette for each test of vitest. */

import { inject, type RunnerTestCase, type RunnerTestFile, test as base } from "vitest";

import { CassetteError } from "./errors.js";
import { cassettePath } from "./names.js";
import {
  type CassetteFixtures,
  type CassetteOptions,
  openPlay,
  type Outcome,
  type Play,
  type TestCassetteOptions,
} from "./play.js";
import { type Address, Server, serverFor } from "./server.js";

declare module "vitest" {
  interface ProvidedContext {
    /** The server that `mrtr-cassette/vitest/global-setup` has started. */
    mrtrCassetteServer: Address;
    /** The options of all tests' cassettes, under those that a test has of its own. */
    cassetteOptions: TestCassetteOptions;
  }
}

/** vitest's `test`; `test.override` (vitest 3: `test.scoped`) sets `cassetteOptions`. */
export const test = base.extend<CassetteFixtures>({
  cassetteOptions: {},
  cassette: async ({ cassetteOptions, task, onTestFinished }, use) => {
    const server = await currentServer();
    const options = { ...inject("cassetteOptions"), ...cassetteOptions };
    const file = options.file ?? ownCassette(task);
    const play = await openPlay(server, { ...options, file });
    // After all fixtures, among which the client may be; an error of a fixture is told twice.
    onTestFinished(async () => {
      const report = await play.end(outcomeOf(task));
      const problems = untoldProblems(report.problems, task);
      if (problems.length > 0) throw new CassetteError(problems.join("\n\n"));
    });
    await use(play);
  },
});

export { test as it };
export type { CassetteFixtures, TestCassetteOptions };

/** Play a cassette beside the test's own, by the server that all tests share. */
export async function cassette(
  options: Omit<CassetteOptions, "folder">,
): Promise<Play> {
  const all = { ...inject("cassetteOptions"), ...options };
  return await openPlay(await currentServer(), all);
}

async function currentServer(): Promise<Server> {
  const address = inject("mrtrCassetteServer") as Address | undefined;
  return address === undefined ? await serverFor() : new Server(address);
}

/** The tests of a file, by their cassettes. */
const testsOfFiles = new WeakMap<RunnerTestFile, Map<string, RunnerTestCase>>();

/** Return the path of the cassette that is named after a test. */
function ownCassette(task: RunnerTestCase): string {
  const titles = [task.name];
  for (let suite = task.suite; suite && suite !== task.file; suite = suite.suite) {
    titles.unshift(suite.name);
  }
  const title = titles.join(" > ");
  const path = cassettePath(task.file.filepath, title);
  const tests = testsOfFiles.get(task.file) ?? new Map<string, RunnerTestCase>();
  testsOfFiles.set(task.file, tests);
  if ((tests.get(path) ?? task) !== task) {
    throw new CassetteError(
      `two tests are called "${title}": give one another title, or name its cassette by \`file\` in cassetteOptions`,
    );
  }
  tests.set(path, task);
  return path;
}

/** Return what has become of a test whose function and hooks have ended. */
function outcomeOf(task: RunnerTestCase): Outcome {
  const state = task.result?.state;
  if (state === "skip") return "skipped";
  const hasFailed = state === "fail";
  if (task.fails) return hasFailed ? "xfailed" : "failed";
  return hasFailed ? "failed" : "passed";
}

/** Return the problems that a test's errors don't tell: a client's error has the text of its miss. */
function untoldProblems(problems: string[], task: RunnerTestCase): string[] {
  const errors = task.result?.errors ?? [];
  const told = errors.map((error) => error.message).join("\n");
  return problems.filter((problem) => {
    // A problem with misses has a head and an end, which nobody else tells.
    const misses = problem.split("\n\n").slice(1, -1);
    return misses.length === 0 || !misses.every((miss) => told.includes(miss));
  });
}
