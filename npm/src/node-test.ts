/** A cassette for a test of node:test. */

import { resolve } from "node:path";

import { CassetteError } from "./errors.js";
import { cassettePath } from "./names.js";
import { openPlay, type Play, type TestCassetteOptions } from "./play.js";
import { serverFor } from "./server.js";

/** What is used of node:test's `TestContext`. */
export interface NodeTestContext {
  readonly fullName: string;
  readonly filePath?: string | undefined;
  readonly error?: unknown;
  after(hook: () => Promise<void>): void;
  diagnostic(message: string): void;
  skip(message?: string): void;
}

export interface NodeTestOptions extends TestCassetteOptions {
  /** The folder within which all cassettes are; by default the current one. */
  folder?: string | undefined;
}

/** Play or record a test's cassette until the test ends; problems fail the test. */
export async function cassetteOf(
  context: NodeTestContext,
  options: NodeTestOptions = {},
): Promise<Play> {
  const server = await serverFor(options.folder);
  const file = options.file ?? ownCassette(context);
  const play = await openPlay(server, { ...options, file });
  const wasSkipped = noteSkip(context);
  context.after(async () => {
    if (context.error === null || context.error === undefined) {
      await play.end(wasSkipped() ? "skipped" : "passed");
      await play[Symbol.asyncDispose]();
      return;
    }
    // The error of a hook would not be shown.
    const { problems } = await play.end("failed");
    for (const line of problems.join("\n").split("\n")) context.diagnostic(line);
  });
  return play;
}

/** Return a function that tells whether a test has skipped itself by then: its context doesn't say it. */
function noteSkip(context: NodeTestContext): () => boolean {
  const skip = context.skip.bind(context);
  let isSkipped = false;
  context.skip = (message) => {
    isSkipped = true;
    skip(message);
  };
  return () => isSkipped;
}

/** The tests of this process, by their cassettes. */
const tests = new Map<string, NodeTestContext>();

/** Return the path of the cassette that is named after a test. */
function ownCassette(context: NodeTestContext): string {
  const { filePath, fullName } = context;
  // Node 20 doesn't say it, but runs each file as a program.
  const file = filePath ?? process.argv[1];
  if (file === undefined) {
    throw new CassetteError(
      `the file of the test "${fullName}" isn't known: name its cassette by \`file\``,
    );
  }
  const path = cassettePath(resolve(file), fullName);
  if ((tests.get(path) ?? context) !== context) {
    throw new CassetteError(
      `two tests are called "${fullName}": give one another title, or name its cassette by \`file\``,
    );
  }
  tests.set(path, context);
  return path;
}
