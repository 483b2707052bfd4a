// An agent on Vercel's AI SDK, with a scripted model.
import { createMCPClient, ElicitationRequestSchema } from '@ai-sdk/mcp';
import { generateText, stepCountIs } from 'ai';
import { MockLanguageModelV3 } from 'ai/test';

const answer = process.env.ANSWER ?? 'accept';
const client = await createMCPClient({
  transport: { type: 'http', url: process.env.MRTR_CASSETTE_URL },
  capabilities: { elicitation: {} },
});
client.onElicitationRequest(ElicitationRequestSchema, ({ params }) => {
  console.log('asked:', params.message);
  return answer === 'accept' ? { action: answer, content: { approve: true } } : { action: answer };
});

const usage = { inputTokens: {}, outputTokens: {} };
const model = new MockLanguageModelV3({
  doGenerate: async ({ prompt }) => {
    const [last] = prompt.at(-1).content;
    if (last.type === 'tool-result') {
      const text = last.output.value[0]?.text ?? JSON.stringify(last.output);
      return { finishReason: { unified: 'stop' }, usage, warnings: [], content: [{ type: 'text', text }] };
    }
    const input = JSON.stringify({ version: '2.0' });
    const call = { type: 'tool-call', toolCallId: '1', toolName: 'release', input };
    return { finishReason: { unified: 'tool-calls' }, usage, warnings: [], content: [call] };
  },
});

try {
  const { text } = await generateText({
    model,
    tools: await client.tools(),
    stopWhen: stepCountIs(3),
    prompt: 'Release version 2.0',
  });
  console.log('agent:', text);
} finally {
  await client.close();
}
