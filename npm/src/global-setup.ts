/** One server for all workers of vitest, from the run's start to its end. */

import type { TestProject } from "vitest/node";

import { serverFor } from "./server.js";

export default async function setup(
  project: TestProject,
): Promise<() => Promise<void>> {
  const server = await serverFor(project.config.root);
  project.provide("mrtrCassetteServer", server.address);
  let isClosing = false;
  // The workers only see that it is gone.
  void server.serving?.ended.then((text) => {
    if (!isClosing) console.error(text);
  });
  return async () => {
    isClosing = true;
    const counts = await server.close();
    if (counts) console.log(`mrtr-cassette: ${counts}`);
  };
}
