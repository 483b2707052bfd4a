/** The same calls, each in a test with a server in its own process that knows nothing else. */

import { createServer, type Server } from "node:http";
import { afterEach, beforeEach, expect, test } from "vitest";

import { call } from "../suite/client.js";

const DISCOVERED = {
  supportedVersions: ["2026-07-28"],
  capabilities: { tools: {} },
  resultType: "complete",
  ttlMs: 0,
  cacheScope: "private",
};
const QUESTION = {
  method: "elicitation/create",
  params: {
    mode: "form",
    message: "Deploy?",
    requestedSchema: {
      type: "object",
      properties: { confirm: { type: "boolean" } },
      required: ["confirm"],
    },
  },
};
const ASKED = { resultType: "input_required", inputRequests: { confirm: QUESTION } };

let server: Server;
let url: string;

beforeEach(async () => {
  server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const { id, method, params } = JSON.parse(Buffer.concat(chunks).toString());
    let result: object = DISCOVERED;
    if (method === "tools/call") {
      const text = `Deployed to ${params.arguments.env}`;
      const deployed = { resultType: "complete", content: [{ type: "text", text }] };
      result = params.inputResponses === undefined ? ASKED : deployed;
    }
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ jsonrpc: "2.0", id, result }));
  });
  url = await new Promise((resolve) => {
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      const port = typeof address === "object" ? address?.port : undefined;
      resolve(`http://127.0.0.1:${port}/mcp`);
    });
  });
});

afterEach(() => {
  server.close();
});

for (let number = 0; number < Number(process.env["TESTS"]); number += 1) {
  const env = `environment-${number}`;
  test(`deploys to ${env}`, async () => {
    expect(await call(url, "deploy", { env })).toBe(`Deployed to ${env}`);
  });
}
