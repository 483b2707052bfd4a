/** One server for all workers of vitest, from the run's start to its end. */

import type { TestProject } from "vitest/node";

import { type Server, serverFor } from "./server.js";

/** The servers that a project closes at the end of its run; others with the same root use them too. */
const watched = new WeakSet<Server>();

export default async function setup(
  project: TestProject,
): Promise<(() => Promise<void>) | undefined> {
  const server = await serverFor(project.config.root);
  project.provide("mrtrCassetteServer", server.address);
  if (watched.has(server)) return undefined;
  watched.add(server);
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
