/** A client on the TypeScript SDK's v2 line, in either era, over Streamable HTTP, HTTP+SSE or stdio. */

import {
  Client,
  SSEClientTransport,
  StreamableHTTPClientTransport,
} from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

import { main } from './steps.mjs';

const MODES = { 2025: 'legacy', 2026: { pin: '2026-07-28' } };

function transportTo(target) {
  if (target.startsWith('[')) {
    const [command, ...args] = JSON.parse(target);
    return new StdioClientTransport({ command, args, stderr: 'inherit' });
  }
  const url = new URL(target);
  return target.endsWith('/sse')
    ? new SSEClientTransport(url)
    : new StreamableHTTPClientTransport(url);
}

await main(async (target, session, era) => {
  const client = new Client(
    { name: 'client', version: '1.0.0' },
    {
      capabilities: {
        elicitation: { form: {}, url: {} },
        sampling: {},
        roots: { listChanged: true },
      },
      versionNegotiation: { mode: MODES[era] },
    },
  );
  client.setRequestHandler('elicitation/create', session.elicit);
  client.setRequestHandler('sampling/createMessage', session.sample);
  client.setRequestHandler('roots/list', session.roots);
  client.fallbackNotificationHandler = session.notified;
  const transport = transportTo(target);
  await client.connect(transport);
  const close = async () => {
    await transport.terminateSession?.();
    await client.close();
  };
  return { client, callTail: [], close };
});
