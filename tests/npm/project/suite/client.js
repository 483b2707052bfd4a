/** A client on the official SDK, as its tests need it. */

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

/** @type {Record<string, string | boolean>} */
const ANSWERS = { confirm: true, scope: "sessions" };

/**
 * Call a tool and return the text of its result; questions are accepted or declined.
 *
 * @param {string | [string, ...string[]]} server a URL, or a command
 * @param {string} name
 * @param {Record<string, unknown>} args
 * @param {"accept" | "decline"} action
 */
export async function call(server, name, args, action = "accept") {
  const client = new Client(
    { name: "suite", version: "1.0.0" },
    {
      capabilities: { elicitation: { form: {} } },
      versionNegotiation: {
        mode: typeof server === "string" ? { pin: "2026-07-28" } : "auto",
      },
    },
  );
  client.setRequestHandler("elicitation/create", ({ params }) => {
    if (action === "decline" || !("requestedSchema" in params)) return { action: "decline" };
    /** @type {Record<string, string | boolean>} */
    const content = {};
    for (const key of Object.keys(params.requestedSchema.properties)) {
      content[key] = ANSWERS[key] ?? "";
    }
    return { action: "accept", content };
  });
  if (typeof server === "string") {
    await client.connect(new StreamableHTTPClientTransport(new URL(server)));
  } else {
    const [command, ...rest] = server;
    await client.connect(new StdioClientTransport({ command, args: rest }));
  }
  try {
    const { content } = await client.callTool({ name, arguments: args });
    const [first] = /** @type {Array<{ type: string, text?: string }>} */ (content);
    return first?.text;
  } finally {
    await client.close();
  }
}
