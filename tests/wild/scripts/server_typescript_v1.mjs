/**
 * A server on the TypeScript SDK's v1 line that pushes its questions: each on the call's own stream
 * or on the stream that the session listens on, whichever a call wants.
 *
 * It offers what `server_python_v1.py` offers, with the same texts.
 */

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { parseArgs } from 'node:util';

import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { SSEServerTransport } from '@modelcontextprotocol/sdk/server/sse.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import {
  CreateMessageResultSchema,
  ElicitResultSchema,
  ListRootsResultSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { z } from 'zod';

const LATER_MS = 50;
const { values: options } = parseArgs({
  options: {
    port: { type: 'string', default: '0' },
    transport: { type: 'string', default: 'http' },
    stdio: { type: 'boolean', default: false },
    resumable: { type: 'boolean', default: false },
    greets: { type: 'boolean', default: false },
    'stateless-json': { type: 'boolean', default: false },
  },
});

/** Keeps all events, under ids that are different in each run. */
class Events {
  events = [];

  async storeEvent(stream, message) {
    const id = randomUUID();
    this.events.push({ id, stream, message });
    return id;
  }

  async getStreamIdForEventId(id) {
    return this.events.find((event) => event.id === id)?.stream;
  }

  async replayEventsAfter(id, { send }) {
    const place = this.events.findIndex((event) => event.id === id);
    const { stream } = this.events[place];
    for (const event of this.events.slice(place + 1)) {
      if (event.stream === stream && event.message.method !== undefined) {
        await send(event.id, event.message);
      } else if (event.stream === stream && event.message.id !== undefined) {
        await send(event.id, event.message);
      }
    }
    return stream;
  }
}

const text = (value) => ({ content: [{ type: 'text', text: value }] });

const sorted = (_key, member) =>
  member?.constructor === Object
    ? Object.fromEntries(Object.entries(member).sort(([a], [b]) => (a < b ? -1 : 1)))
    : member;

const spelled = (value) => JSON.stringify(value, sorted);

/** Wait until the session has a stream for what belongs to no call. */
async function listening(transport) {
  const streams = transport._webStandardTransport?._streamMapping;
  if (streams === undefined || options['stateless-json']) return;
  while (!streams.has('_GET_stream')) await new Promise((resolve) => setTimeout(resolve, 5));
}

function makeServer() {
  const mcp = new McpServer(
    { name: 'wild', version: '1.0.0' },
    { capabilities: { logging: {}, resources: { listChanged: true } } },
  );
  const { server } = mcp;

  const ask = async (method, params, schema, stream, extra) => {
    if (stream === 'call') return await extra.sendRequest({ method, params }, schema);
    await listening(server.transport);
    return await server.request({ method, params }, schema);
  };

  const form = async (message, stream, extra) => {
    const requestedSchema = {
      type: 'object',
      properties: { name: { type: 'string' } },
      required: ['name'],
    };
    const params = { mode: 'form', message, requestedSchema };
    return spelled(await ask('elicitation/create', params, ElicitResultSchema, stream, extra));
  };

  const visit = async (message, stream, extra) => {
    const url = 'https://example.com/auth';
    const params = { mode: 'url', message, url, elicitationId: 'sign-in-1' };
    return spelled(await ask('elicitation/create', params, ElicitResultSchema, stream, extra));
  };

  const sampled = async (prompt, stream, extra) => {
    const messages = [{ role: 'user', content: { type: 'text', text: prompt } }];
    const params = { messages, maxTokens: 100 };
    try {
      const { content } = await ask(
        'sampling/createMessage',
        params,
        CreateMessageResultSchema,
        stream,
        extra,
      );
      return spelled(content);
    } catch (error) {
      return `refused: ${error.code} ${error.message.replace(/^MCP error -?\d+: /, '')}`;
    }
  };

  const tool = (name, description, shape, call) =>
    mcp.registerTool(name, { description, inputSchema: shape }, call);
  const where = z.enum(['call', 'get']);

  tool('add', 'Add two numbers.', { a: z.number(), b: z.number() }, ({ a, b }) => text(`${a + b}`));
  tool('fail', 'Fail.', {}, () => {
    throw new Error('as ever');
  });
  tool(
    'ask-form',
    'Ask for a name.',
    { message: z.string(), stream: where },
    async ({ message, stream }, extra) => text(await form(message, stream, extra)),
  );
  tool(
    'ask-url',
    'Ask to visit a page.',
    { message: z.string(), stream: where },
    async ({ message, stream }, extra) => text(await visit(message, stream, extra)),
  );
  tool(
    'sample',
    "Ask for a model's words.",
    { prompt: z.string(), stream: where },
    async ({ prompt, stream }, extra) => text(await sampled(prompt, stream, extra)),
  );
  tool('list-roots', 'Ask for the roots.', {}, async (_args, extra) =>
    text(spelled(await ask('roots/list', {}, ListRootsResultSchema, 'get', extra))),
  );
  tool('ask-together', 'Ask three things at once.', { stream: where }, async ({ stream }, extra) => {
    const answers = await Promise.all([
      form('Name?', stream, extra),
      sampled('Summarize', stream, extra),
      form('Other name? (decline)', stream, extra),
    ]);
    return text(answers.join(' '));
  });
  tool('ask-rounds', 'Ask again.', { rounds: z.number() }, async ({ rounds }, extra) => {
    const answers = [];
    for (let number = 0; number < rounds; number += 1) {
      answers.push(await form(`Round ${number}?`, 'call', extra));
    }
    return text(answers.join(' '));
  });

  const log = (logger, data) => ({
    method: 'notifications/message',
    params: { level: 'info', logger, data },
  });

  tool('notify', 'Report progress.', { steps: z.number() }, async ({ steps }, extra) => {
    await listening(server.transport);
    const progressToken = extra._meta?.progressToken;
    for (let step = 1; step <= steps; step += 1) {
      const message = `step ${step}`;
      if (progressToken !== undefined) {
        const params = { progressToken, progress: step, total: steps, message };
        await extra.sendNotification({ method: 'notifications/progress', params });
      }
      await extra.sendNotification(log('call', message));
      await server.notification(log('get', message));
    }
    return text(`${steps} steps`);
  });
  tool('announce-later', 'Tell after the call of other resources.', {}, async () => {
    await listening(server.transport);
    setTimeout(() => server.sendResourceListChanged(), LATER_MS);
    return text('later');
  });
  tool('poll', 'Close the stream in between.', { steps: z.number() }, async ({ steps }, extra) => {
    for (let step = 1; step <= steps; step += 1) {
      await extra.sendNotification(log('call', `before ${step}`));
      extra.closeSSEStream?.();
      await extra.sendNotification(log('call', `after ${step}`));
    }
    return text(`polled ${steps}`);
  });

  if (options.greets) {
    server.oninitialized = async () => {
      await listening(server.transport);
      await server.listRoots();
      await server.sendResourceListChanged();
    };
  }
  return mcp;
}

const transports = new Map();

async function serveStreamable(request, response) {
  let transport = transports.get(request.headers['mcp-session-id']);
  if (transport === undefined) {
    transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: options['stateless-json'] ? undefined : randomUUID,
      enableJsonResponse: options['stateless-json'],
      eventStore: options.resumable ? new Events() : undefined,
      retryInterval: options.resumable ? 1 : undefined,
      onsessioninitialized: (id) => transports.set(id, transport),
    });
    await makeServer().connect(transport);
  }
  await transport.handleRequest(request, response);
}

async function serveEvents(request, response) {
  const { pathname, searchParams } = new URL(request.url, 'http://127.0.0.1');
  if (pathname === '/sse') {
    const transport = new SSEServerTransport('/messages', response);
    transports.set(transport.sessionId, transport);
    await makeServer().connect(transport);
  } else {
    await transports.get(searchParams.get('sessionId')).handlePostMessage(request, response);
  }
}

if (options.stdio) {
  await makeServer().connect(new StdioServerTransport());
} else {
  const isEvents = options.transport === 'sse';
  const listener = createServer(isEvents ? serveEvents : serveStreamable);
  listener.listen(Number(options.port), '127.0.0.1', () => {
    const { port } = listener.address();
    console.log(`listening on http://127.0.0.1:${port}/${isEvents ? 'sse' : 'mcp'}`);
  });
}
