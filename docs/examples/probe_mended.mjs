// The same MCP server on the TypeScript SDK, which holds its client to what was asked.
import { randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import { toNodeHandler } from '@modelcontextprotocol/node';
import * as mcp from '@modelcontextprotocol/server';
import { z } from 'zod';

const codec = mcp.createRequestStateCodec({ key: randomBytes(32) });
const form = z.object({ confirm: z.boolean() });

function makeServer() {
  const server = new mcp.McpServer(
    { name: 'deployments', version: '1.0.0' },
    { requestState: { verify: codec.verify } },
  );
  const inputSchema = z.object({ env: z.string() });
  server.registerTool('deploy', { inputSchema }, async ({ env }, ctx) => {
    const question = `Deploy to ${env}?`;
    const responses = ctx.mcpReq.inputResponses ?? {};
    if (ctx.mcpReq.requestState() !== question || !('confirm' in responses)) {
      const confirm = mcp.inputRequired.elicit({ message: question, requestedSchema: form });
      const requestState = await codec.mint(question);
      return mcp.inputRequired({ inputRequests: { confirm }, requestState });
    }
    const given = mcp.acceptedContent(responses, 'confirm', form);
    const text = given?.confirm ? `Deployed to ${env}` : 'Not deployed';
    return { content: [{ type: 'text', text }] };
  });
  return server;
}

const serve = toNodeHandler(mcp.createMcpHandler(makeServer));
createServer((request, response) => serve(request, response)).listen(process.argv[2], '127.0.0.1');
