/**
 * A client on the TypeScript SDK that finds out by itself which version its server speaks.
 *
 * Usage: node negotiating_typescript.mjs URL
 */

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const client = new Client(
  { name: 'negotiating-typescript', version: '1.0.0' },
  { versionNegotiation: { mode: 'auto' } },
);
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
const { tools } = await client.listTools();
console.log(client.getNegotiatedProtocolVersion(), tools.length);
await client.ping();
await client.close();
