/** A client of HTTP+SSE on the TypeScript SDK: three calls, each with the progress that it is told. */

import { Client, SSEClientTransport } from '@modelcontextprotocol/client';

const client = new Client({ name: 'sse', version: '1.0.0' }, { capabilities: {} });
await client.connect(new SSEClientTransport(new URL(process.argv[2])));
for (const to of [1, 2, 3]) {
  const told = [];
  const onprogress = ({ progress }) => told.push(progress);
  const { content } = await client.callTool({ name: 'count', arguments: { to } }, { onprogress });
  console.log(content[0].text, ...told);
}
await client.close();
