/**
 * An MCP client on the official TypeScript SDK, for tests: runs fixed flows, prints a transcript.
 *
 * The transcript holds what the client saw and nothing that varies between runs or servers;
 * `client_python.py` prints the same text. Answers depend on the question alone, and
 * `--decline MESSAGE` declines one more of them.
 *
 * Usage: node client_typescript.mjs [URL] [--flow NAME]... [--decline MESSAGE]... [-- COMMAND ...]
 */

import { parseArgs } from 'node:util';

import { Client, ProtocolError, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const PROTOCOL_VERSION = '2026-07-28';
const DECLINED = new Set(['Deploy to staging?', 'Tag v2.1.0?']);
const ANSWERS = {
  approve: true,
  audience: 'operators',
  confirm: true,
  name: 'analytics',
  notes: 'none',
  region: 'eu-west-1',
  scope: 'sessions',
  window: 'tonight',
};
const SHOWN = ['content', 'isError', 'structuredContent', 'messages', 'contents'];

const sorted = (value) =>
  Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));

/** Render a value as canonical JSON. */
const quoted = (value) =>
  JSON.stringify(value, (_key, member) =>
    member?.constructor === Object ? sorted(member) : member,
  );

/** Print the part of a result that MCP gives a meaning; a false `isError` is an absent one. */
function showResult(result) {
  const shown = SHOWN.filter((key) => result[key] !== undefined && result[key] !== false);
  console.log('result', quoted(Object.fromEntries(shown.map((key) => [key, result[key]]))));
}

/** Print one progress notification; what the SDK itself reports about a round is none. */
function showProgress({ progress, total, message }) {
  if (message?.startsWith('Fulfilling input required by')) return;
  const ofTotal = total === undefined ? '' : `/${total}`;
  console.log(`progress ${progress}${ofTotal} ${quoted(message ?? null)}`);
}

/** Accept or decline a form or a URL, by its message. */
function elicit({ params }) {
  if (params.mode === 'url') {
    console.log('ask url', quoted(params.message), params.url);
    return { action: 'accept' };
  }
  const fields = params.requestedSchema.properties;
  const names = Object.keys(fields).sort();
  console.log(
    'ask form',
    quoted(params.message),
    ...names.map((name) => `${name}:${fields[name].type}`),
  );
  if (DECLINED.has(params.message)) return { action: 'decline' };
  return {
    action: 'accept',
    content: Object.fromEntries(names.map((name) => [name, ANSWERS[name]])),
  };
}

/** Answer in place of a model. */
function sample({ params }) {
  const texts = params.messages.flatMap(({ content }) => content).map((block) => block.text);
  console.log('ask sampling', ...texts.map(quoted), `maxTokens:${params.maxTokens}`);
  return { role: 'assistant', content: { type: 'text', text: 'Two commits' }, model: 'stub' };
}

/** Offer one root. */
function listRoots() {
  console.log('ask roots');
  return { roots: [{ uri: 'file:///workspace', name: 'workspace' }] };
}

/** Print the names of everything that the server offers. */
async function listAll(client) {
  const show = (kind, items) => console.log(kind, ...items.map((item) => item.name).sort());
  show('tools', (await client.listTools()).tools);
  show('prompts', (await client.listPrompts()).prompts);
  show('resources', (await client.listResources()).resources);
  show('templates', (await client.listResourceTemplates()).resourceTemplates);
}

const tool = (name, args, options) => async (client) =>
  showResult(await client.callTool({ name, arguments: args }, options));
const prompt = (name, args) => async (client) =>
  showResult(await client.getPrompt({ name, arguments: args }));
const resource = (uri) => async (client) => showResult(await client.readResource({ uri }));

const FLOWS = {
  list: listAll,
  add: tool('add', { a: 1, b: 2 }),
  deploy: tool('deploy', { env: 'production' }),
  'deploy-declined': tool('deploy', { env: 'staging' }),
  'tag-release': tool('tag-release', { tag: 'v2.1.0' }),
  provision: tool('provision', {}),
  'wipe-cache': tool('wipe-cache', {}),
  'release-train': tool('release-train', { version: '2.1' }),
  everything: tool('everything', {}),
  build: tool('build', { target: 'wheel' }),
  count: tool('count', { to: 3 }, { onprogress: showProgress }),
  'ask-late': tool('ask-late', { steps: 2 }, { onprogress: showProgress }),
  'release-notes': prompt('release-notes', { version: '2.1' }),
  deployment: resource('config://deployment'),
  plain: resource('config://plain'),
};
const LEGACY_FLOWS = { plan: tool('plan', {}) };

const dashes = process.argv.indexOf('--');
const [command, ...commandArgs] = dashes < 0 ? [] : process.argv.slice(dashes + 1);
const several = { type: 'string', multiple: true, default: [] };
const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  args: process.argv.slice(2, dashes < 0 ? undefined : dashes),
  options: { flow: several, decline: several, legacy: { type: 'boolean', default: false } },
});
const [url = process.env.MRTR_CASSETTE_URL] = positionals;
const flows = options.legacy ? LEGACY_FLOWS : FLOWS;
const unknown = options.flow.filter((name) => !(name in flows));
if ((url === undefined && command === undefined) || positionals.length > 1 || unknown.length > 0) {
  console.error(
    'usage: client_typescript.mjs [URL] [--flow NAME]... [--decline MESSAGE]...',
    ...unknown,
  );
  process.exit(2);
}
for (const message of options.decline) DECLINED.add(message);

const pinned = command === undefined ? { pin: PROTOCOL_VERSION } : 'auto';
const mode = options.legacy ? 'legacy' : pinned;
const client = new Client(
  { name: 'client-typescript', version: '1.0.0' },
  {
    capabilities: { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} },
    versionNegotiation: { mode },
  },
);
client.setRequestHandler('elicitation/create', elicit);
client.setRequestHandler('sampling/createMessage', sample);
client.setRequestHandler('roots/list', listRoots);

await client.connect(
  command === undefined
    ? new StreamableHTTPClientTransport(new URL(url))
    : new StdioClientTransport({ command, args: commandArgs }),
);
for (const name of options.flow.length > 0 ? options.flow : Object.keys(flows)) {
  console.log('==', name);
  try {
    await flows[name](client);
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error;
    process.exitCode = 1;
    console.log('error', error.code, quoted(error.message));
    console.error(`${name}: ${error.code} ${error.message}`);
  }
}
await client.close();
