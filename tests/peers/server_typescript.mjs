/**
 * An MCP server on the official TypeScript SDK, for tests: every shape of multi-round-trip request.
 *
 * It offers what `server_python.py` offers, with the same texts, so that a client's transcript
 * does not depend on which of the two answered. Request state is signed, not encrypted.
 */

import { randomBytes, randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { parseArgs } from 'node:util';

import {
  NodeStreamableHTTPServerTransport,
  toNodeHandler,
  toWebRequest,
} from '@modelcontextprotocol/node';
import {
  acceptedContent,
  createMcpHandler,
  createRequestStateCodec,
  inputRequired,
  inputResponse,
  isLegacyRequest,
  McpServer,
  ResourceTemplate,
} from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';

const codec = createRequestStateCodec({ key: randomBytes(32) });

const text = (value) => ({ content: [{ type: 'text', text: value }] });

/** Ask for one field, named like the key of the question. */
const form = (key, message, type = 'string') =>
  inputRequired.elicit({
    message,
    requestedSchema: { type: 'object', properties: { [key]: { type } }, required: [key] },
  });

/** The value that the client entered for `key`, or undefined if there is none. */
const accepted = (ctx, key) => acceptedContent(ctx.mcpReq.inputResponses, key)?.[key];

/** Send one progress notification for each step to a client that wants them. */
async function reportSteps(ctx, steps) {
  const progressToken = ctx.mcpReq._meta?.progressToken;
  if (progressToken === undefined) return;
  for (let step = 1; step <= steps; step += 1) {
    await ctx.mcpReq.notify({
      method: 'notifications/progress',
      params: { progressToken, progress: step, total: steps, message: `step ${step}` },
    });
  }
}

function addTools(server) {
  const tool = (name, description, shape, call) =>
    server.registerTool(name, { description, inputSchema: z.object(shape) }, call);

  tool('add', 'Add two numbers.', { a: z.int(), b: z.int() }, ({ a, b }) => text(`${a + b}`));

  tool('deploy', 'Deploy after the operator confirms.', { env: z.string() }, ({ env }, ctx) => {
    if (ctx.mcpReq.inputResponses === undefined) {
      return inputRequired({
        inputRequests: { confirm: form('confirm', `Deploy to ${env}?`, 'boolean') },
      });
    }
    return text(accepted(ctx, 'confirm') ? `Deployed to ${env}` : 'Deployment cancelled');
  });

  tool(
    'tag-release',
    'Tag a release after the operator confirms.',
    { tag: z.string() },
    ({ tag }, ctx) => {
      if (ctx.mcpReq.inputResponses === undefined) {
        return inputRequired({
          inputRequests: { confirm: form('confirm', `Tag ${tag}?`, 'boolean') },
        });
      }
      if (accepted(ctx, 'confirm')) return text(`Tagged ${tag}`);
      return { ...text('Tagging cancelled by the operator'), isError: true };
    },
  );

  tool('provision', 'Provision a database.', {}, (_args, ctx) => {
    if (ctx.mcpReq.inputResponses === undefined) {
      return inputRequired({
        inputRequests: {
          name: form('name', 'Database name?'),
          region: form('region', 'Which region?'),
        },
      });
    }
    return text(`Provisioned ${accepted(ctx, 'name')} in ${accepted(ctx, 'region')}`);
  });

  tool('wipe-cache', 'Confirm, then pick a scope, then wipe.', {}, async (_args, ctx) => {
    if (ctx.mcpReq.requestState() !== undefined) return text(`Wiped ${accepted(ctx, 'scope')}`);
    if (!accepted(ctx, 'confirm')) {
      return inputRequired({
        inputRequests: { confirm: form('confirm', 'Really wipe the cache?', 'boolean') },
      });
    }
    return inputRequired({
      inputRequests: { scope: form('scope', 'Which scope?') },
      requestState: await codec.mint({ step: 'confirmed' }),
    });
  });

  tool(
    'release-train',
    'Approve, schedule and annotate a release train.',
    { version: z.string() },
    async ({ version }, ctx) => {
      const rounds = {
        approve: form('approve', `Approve train ${version}?`, 'boolean'),
        window: form('window', 'Which window?'),
        notes: form('notes', 'Any notes?'),
      };
      const known = { ...ctx.mcpReq.requestState() };
      for (const key of Object.keys(ctx.mcpReq.inputResponses ?? {})) {
        known[key] = accepted(ctx, key);
      }
      for (const [key, question] of Object.entries(rounds)) {
        if (!(key in known)) {
          return inputRequired({
            inputRequests: { [key]: question },
            requestState: await codec.mint(known),
          });
        }
      }
      return text(`Train ${version}: ${known.window}, ${known.notes}`);
    },
  );

  tool('everything', 'Ask every kind of question in one round.', {}, (_args, ctx) => {
    const responses = ctx.mcpReq.inputResponses;
    if (responses === undefined) {
      const prompt = { role: 'user', content: { type: 'text', text: 'Summarize the diff' } };
      return inputRequired({
        inputRequests: {
          confirm: form('confirm', 'Continue?', 'boolean'),
          signin: inputRequired.elicitUrl({
            message: 'Sign in to continue',
            url: 'https://example.com/auth',
          }),
          summary: inputRequired.createMessage({ messages: [prompt], maxTokens: 200 }),
          roots: inputRequired.listRoots(),
        },
      });
    }
    const [confirmed, signedIn, summary, listing] = ['confirm', 'signin', 'summary', 'roots'].map(
      (key) => inputResponse(responses, key),
    );
    const uris = listing.roots.map((root) => root.uri).join(' ');
    return text(
      `confirm ${confirmed.action}, signin ${signedIn.action}, ` +
        `summary ${summary.result.content.text}, roots ${uris}`,
    );
  });

  tool(
    'build',
    'Build a target, which takes a second call.',
    { target: z.string() },
    async ({ target }, ctx) =>
      ctx.mcpReq.requestState() === undefined
        ? inputRequired({ requestState: await codec.mint('started') })
        : text(`Built ${target}`),
  );

  tool('count', 'Count, reporting progress.', { to: z.int() }, async ({ to }, ctx) => {
    await reportSteps(ctx, to);
    return text(`Counted to ${to}`);
  });

  tool(
    'ask-late',
    'Report progress, then ask, then report progress again.',
    { steps: z.int() },
    async ({ steps }, ctx) => {
      await reportSteps(ctx, steps);
      if (ctx.mcpReq.inputResponses === undefined) {
        return inputRequired({
          inputRequests: { confirm: form('confirm', `Finish after ${steps}?`, 'boolean') },
        });
      }
      return text(accepted(ctx, 'confirm') ? `Done after ${steps}` : `Stopped after ${steps}`);
    },
  );
}

function addPromptsAndResources(server) {
  server.registerPrompt(
    'release-notes',
    {
      description: 'Write release notes for an audience.',
      argsSchema: z.object({ version: z.string() }),
    },
    ({ version }, ctx) => {
      if (ctx.mcpReq.inputResponses === undefined) {
        return inputRequired({
          inputRequests: { audience: form('audience', 'Who reads the notes?') },
        });
      }
      const notes = `Notes on ${version} for ${accepted(ctx, 'audience')}`;
      return { messages: [{ role: 'user', content: { type: 'text', text: notes } }] };
    },
  );

  const mimeType = 'text/plain';
  const contents = (uri, value) => ({ contents: [{ uri: uri.href, mimeType, text: value }] });

  server.registerResource(
    'deployment',
    new ResourceTemplate('config://{name}', { list: undefined }),
    { description: 'Show a configuration after the operator confirms.', mimeType },
    (uri, { name }, ctx) => {
      if (ctx.mcpReq.inputResponses === undefined) {
        const question = `Reveal the ${name} configuration?`;
        return inputRequired({ inputRequests: { confirm: form('confirm', question, 'boolean') } });
      }
      return contents(uri, accepted(ctx, 'confirm') ? 'replicas: 3' : 'withheld');
    },
  );

  server.registerResource(
    'plain',
    'config://plain',
    { description: 'Show what anybody may read.', mimeType },
    (uri) => contents(uri, 'plain'),
  );
}

/** Make a server with everything that it offers. */
function makeServer() {
  const server = new McpServer(
    { name: 'releases', version: '1.0.0' },
    { requestState: { verify: codec.verify } },
  );
  addTools(server);
  addPromptsAndResources(server);
  return server;
}

const sessions = new Map();

/** Serve a client of the 2025 era, to which the SDK pushes what the tools require. */
async function serveSession(request, response, body) {
  let transport = sessions.get(request.headers['mcp-session-id']);
  if (transport === undefined) {
    transport = new NodeStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => sessions.set(id, transport),
    });
    await makeServer().connect(transport);
  }
  await transport.handleRequest(request, response, body);
}

/** Serve HTTP on a port, or on a free one. */
function serveHttp(port) {
  const serveMcp = toNodeHandler(createMcpHandler(makeServer));
  const serve = async (request, response) => {
    if (request.method !== 'POST') return await serveSession(request, response);
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = JSON.parse(Buffer.concat(chunks).toString());
    const isLegacy = await isLegacyRequest(await toWebRequest(request, body));
    await (isLegacy ? serveSession : serveMcp)(request, response, body);
  };
  const listener = createServer((request, response) => {
    if (request.url === '/mcp') serve(request, response);
    else response.writeHead(404).end();
  });
  listener.listen(port, '127.0.0.1', () => {
    console.log(`listening on http://127.0.0.1:${listener.address().port}/mcp`);
  });
}

const { values: options } = parseArgs({
  options: { port: { type: 'string', default: '0' }, stdio: { type: 'boolean', default: false } },
});
if (options.stdio) serveStdio(makeServer);
else serveHttp(Number(options.port));
