// Tests of a client that deploys through an MCP server which asks before it acts.
// The server's URL comes from the environment, so the same suite records and replays:
//
//   mrtr-cassette record --upstream http://localhost:8000/mcp -- node --test
//   mrtr-cassette replay cassette.json -- node --test

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

/** Deploy, answer the server's question with `answer`, and return what it says in the end. */
async function deploy(env, answer) {
  const client = new Client(
    { name: 'deployer', version: '1.0.0' },
    {
      capabilities: { elicitation: { form: {} } },
      versionNegotiation: { mode: { pin: '2026-07-28' } },
    },
  );
  const questions = [];
  client.setRequestHandler('elicitation/create', ({ params }) => {
    questions.push(params.message);
    return answer;
  });
  await client.connect(new StreamableHTTPClientTransport(new URL(process.env.MRTR_CASSETTE_URL)));
  try {
    const result = await client.callTool({ name: 'deploy', arguments: { env } });
    return { questions, text: result.content[0].text };
  } finally {
    await client.close();
  }
}

test('deploys when the operator confirms', async () => {
  const { questions, text } = await deploy('production', {
    action: 'accept',
    content: { confirm: true },
  });
  assert.deepEqual(questions, ['Deploy to production?']);
  assert.equal(text, 'Deployed to production');
});

test('leaves it when the operator declines', async () => {
  const { text } = await deploy('production', { action: 'decline' });
  assert.equal(text, 'Deployment cancelled');
});
