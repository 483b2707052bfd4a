/**
 * The TypeScript SDK's client: calls tools, answers what they ask, and prints a JSON line for each.
 *
 *     client_plans.mjs --era 2026 --answer accept TARGET TOOL...
 *
 * TARGET is a URL, or a command as a JSON array of words.
 */

import { parseArgs } from 'node:util';

import { Client, ProtocolError, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const MODES = { 2025: 'legacy', 2026: { pin: '2026-07-28' } };
const VALUES = { name: 'fast', confirm: true };

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: { era: { type: 'string' }, answer: { type: 'string' } },
});
const [target, ...tools] = positionals;
let asked = [];

/** Fill in a form, or open a URL, unless questions are not accepted. */
function elicit({ params }) {
  if (params.mode === 'url') {
    asked.push(`url: ${params.message} ${params.url}`);
    return { action: options.answer };
  }
  const fields = Object.keys(params.requestedSchema.properties).sort();
  asked.push(`form: ${params.message} ${fields.join(' ')}`);
  if (options.answer !== 'accept') return { action: options.answer };
  const content = Object.fromEntries(fields.map((field) => [field, VALUES[field]]));
  return { action: 'accept', content };
}

/** Answer in place of a model. */
function sample({ params }) {
  const [block] = params.messages.flatMap(({ content }) => content);
  asked.push(`sampling: ${block.text}`);
  return { role: 'assistant', content: { type: 'text', text: 'Two steps' }, model: 'stub' };
}

/** Call a tool, and tell what its caller saw. */
async function call(client, tool) {
  asked = [];
  try {
    const { content } = await client.callTool({ name: tool, arguments: {} });
    return { tool, asked, result: content.map((block) => block.text).join(''), error: '' };
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error;
    return { tool, asked, result: '', error: error.message };
  }
}

/** Reach a URL, or a server that a command starts. */
function transport() {
  if (!target.startsWith('[')) return new StreamableHTTPClientTransport(new URL(target));
  const [command, ...args] = JSON.parse(target);
  return new StdioClientTransport({ command, args, stderr: 'inherit' });
}

const client = new Client(
  { name: 'client-typescript', version: '1.0.0' },
  {
    capabilities: { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} },
    versionNegotiation: { mode: MODES[options.era] },
  },
);
client.setRequestHandler('elicitation/create', elicit);
client.setRequestHandler('sampling/createMessage', sample);
client.setRequestHandler('roots/list', () => ({
  roots: [{ uri: 'file:///workspace', name: 'workspace' }],
}));
await client.connect(transport());
await client.listTools();
for (const tool of tools) console.log(JSON.stringify(await call(client, tool)));
await client.close();
