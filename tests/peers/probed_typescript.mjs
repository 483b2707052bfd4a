/**
 * Servers of the official TypeScript SDK that ask before they act, as its documentation shows it.
 *
 * `--style`: `guard`, with a state as it was written; `codec`, with the SDK's codec; `bound`, with
 * the question in the state and a schema for each answer besides; `pushed`, as `guard` in sessions
 * of the earlier revision, in which the SDK pushes what the tools require.
 */

import { randomBytes, randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { parseArgs } from 'node:util';

import { NodeStreamableHTTPServerTransport, toNodeHandler } from '@modelcontextprotocol/node';
import {
  acceptedContent,
  createMcpHandler,
  createRequestStateCodec,
  inputRequired,
  McpServer,
} from '@modelcontextprotocol/server';
import { z } from 'zod';

const { values: options } = parseArgs({
  options: { port: { type: 'string', default: '0' }, style: { type: 'string' } },
});
const codec = createRequestStateCodec({ key: randomBytes(32) });
const isSealed = options.style === 'codec' || options.style === 'bound';
const isBound = options.style === 'bound';

const FORMS = {
  confirm: z.object({ confirm: z.boolean() }),
  scope: z.object({ scope: z.string() }),
  wanted: z.object({ size: z.int().min(1).max(10), kind: z.enum(['small', 'large']) }),
};

const text = (value) => ({ content: [{ type: 'text', text: value }] });

/** What the state says, if the request has one. */
function stateOf(ctx) {
  const state = ctx.mcpReq.requestState();
  return isSealed || state === undefined ? state : JSON.parse(state);
}

/** Ask one question; the state has what is proved, and what is asked where it is bound to that. */
async function ask(key, message, proved) {
  const question = inputRequired.elicit({ message, requestedSchema: FORMS[key] });
  const inputRequests = { [key]: question };
  if (proved === undefined && !isBound) return inputRequired({ inputRequests });
  const state = { ...proved, ...(isBound && { asked: message }) };
  const requestState = isSealed ? await codec.mint(state) : JSON.stringify(state);
  return inputRequired({ inputRequests, requestState });
}

/** What a form was filled with; if states are bound, only as the answer to this message. */
function entered(ctx, key, message) {
  if (!isBound) return acceptedContent(ctx.mcpReq.inputResponses, key);
  if (stateOf(ctx)?.asked !== message) return undefined;
  return acceptedContent(ctx.mcpReq.inputResponses, key, FORMS[key]);
}

/** Who has been on the page. */
const visitors = new Set(['forge']);

function makeServer() {
  const server = new McpServer(
    { name: 'probed', version: '1.0.0' },
    isSealed ? { requestState: { verify: codec.verify } } : {},
  );
  const tool = (name, argument, call) => {
    const inputSchema = z.object({ [argument]: z.string() });
    server.registerTool(name, { inputSchema }, (given, ctx) => call(given[argument], ctx));
  };

  tool('deploy', 'env', async (env, ctx) => {
    const message = `Deploy to ${env}?`;
    if (!entered(ctx, 'confirm', message)?.confirm) return await ask('confirm', message);
    return text(`Deployed to ${env}`);
  });

  tool('wipe', 'env', async (env, ctx) => {
    const [message, which] = [`Wipe ${env}?`, `Which scope of ${env}?`];
    const isConfirmed = stateOf(ctx)?.step === 'confirmed';
    if (!isConfirmed && !entered(ctx, 'confirm', message)?.confirm) {
      return await ask('confirm', message);
    }
    const chosen = isConfirmed ? entered(ctx, 'scope', which) : undefined;
    if (chosen === undefined) return await ask('scope', which, { step: 'confirmed', round: 1 });
    return text(`Wiped ${chosen.scope} of ${env}`);
  });

  tool('resize', 'group', async (group, ctx) => {
    const message = `How large is ${group}?`;
    const wanted = entered(ctx, 'wanted', message);
    if (wanted === undefined) return await ask('wanted', message);
    return text(`${group} has ${wanted.size}, ${wanted.kind}`);
  });
  tool('signin', 'site', async (site, ctx) => {
    const answer = ctx.mcpReq.inputResponses?.signin;
    if (stateOf(ctx)?.asked !== site || answer === undefined) {
      const url = 'https://example.com/sign-in';
      const signin = inputRequired.elicitUrl({ message: `Sign in to ${site}`, url });
      const requestState = await codec.mint({ asked: site });
      return inputRequired({ inputRequests: { signin }, requestState });
    }
    const isSignedIn = answer.action === 'accept' && visitors.delete(site);
    return text(isSignedIn ? `Signed in to ${site}` : 'Not signed in');
  });
  return server;
}

const sessions = new Map();

/** Serve a client of the earlier revision. */
async function serveSession(request, response) {
  let transport = sessions.get(request.headers['mcp-session-id']);
  if (transport === undefined) {
    transport = new NodeStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => sessions.set(id, transport),
    });
    await makeServer().connect(transport);
  }
  await transport.handleRequest(request, response);
}

const serveMcp = toNodeHandler(createMcpHandler(makeServer));
const listener = createServer(async (request, response) => {
  if (options.style === 'pushed') return await serveSession(request, response);
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  await serveMcp(request, response, JSON.parse(Buffer.concat(chunks).toString()));
});
listener.listen(Number(options.port), '127.0.0.1', () => {
  console.log(`listening on http://127.0.0.1:${listener.address().port}/mcp`);
});
