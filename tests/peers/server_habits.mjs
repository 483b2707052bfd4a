/**
 * An MCP server of 2025-11-25 on the official TypeScript SDK, on pipes, with habits that many have.
 *
 * It logs when it starts, asks for roots on its own accord, makes up ids that its clients send
 * back, and has a tool that only ends when it is cancelled.
 */

import { randomUUID } from 'node:crypto';
import { McpServer } from '@modelcontextprotocol/server';
import { StdioServerTransport } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';

const text = (value) => ({ content: [{ type: 'text', text: value }] });
const server = new McpServer(
  { name: 'habits', version: '1.0.0' },
  { capabilities: { logging: {} } },
);
const found = new Set();
let roots = [];

server.server.oninitialized = async () => {
  await server.sendLoggingMessage({ level: 'info', data: 'started' });
  const listed = await server.server.listRoots();
  roots = listed.roots.map((root) => root.uri);
};

const tool = (name, shape, call) =>
  server.registerTool(name, { inputSchema: z.object(shape) }, call);

tool('folders', {}, async () => {
  // The answer to `roots/list` may be read in one piece with this call.
  await new Promise(setImmediate);
  return text(`in ${roots.join(' ')}`);
});
tool('search', { words: z.string() }, ({ words }) => {
  const id = randomUUID();
  found.add(id);
  return text(`Found ${words}: ${id}`);
});
tool('open', { id: z.string() }, ({ id }) =>
  found.has(id) ? text('The page') : { ...text('Not found'), isError: true },
);
tool('slow', {}, async (_args, ctx) => {
  const { progressToken } = ctx.mcpReq._meta;
  await ctx.mcpReq.notify({
    method: 'notifications/progress',
    params: { progressToken, progress: 1 },
  });
  await new Promise((resolve) => ctx.mcpReq.signal.addEventListener('abort', resolve));
  return text('never seen');
});

await server.connect(new StdioServerTransport());
