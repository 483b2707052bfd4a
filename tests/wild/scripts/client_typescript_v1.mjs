/** A client on the TypeScript SDK's v1 line, over Streamable HTTP, HTTP+SSE or stdio. */

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  CallToolResultSchema,
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';

import { main } from './steps.mjs';

function transportTo(target) {
  if (target.startsWith('[')) {
    const [command, ...args] = JSON.parse(target);
    return new StdioClientTransport({ command, args, stderr: 'inherit' });
  }
  const url = new URL(target);
  return target.endsWith('/sse')
    ? new SSEClientTransport(url)
    : new StreamableHTTPClientTransport(url, {
        reconnectionOptions: {
          initialReconnectionDelay: 1,
          maxReconnectionDelay: 1000,
          reconnectionDelayGrowFactor: 1.5,
          maxRetries: 2,
        },
      });
}

await main(async (target, session) => {
  const client = new Client(
    { name: 'client', version: '1.0.0' },
    {
      capabilities: {
        elicitation: { form: {}, url: {} },
        sampling: {},
        roots: { listChanged: true },
      },
    },
  );
  client.setRequestHandler(ElicitRequestSchema, session.elicit);
  client.setRequestHandler(CreateMessageRequestSchema, session.sample);
  client.setRequestHandler(ListRootsRequestSchema, session.roots);
  client.fallbackNotificationHandler = session.notified;
  const transport = transportTo(target);
  await client.connect(transport);
  const close = async () => {
    await transport.terminateSession?.();
    await client.close();
  };
  return { client, callTail: [CallToolResultSchema], close };
});
