/** A client of HTTP+SSE on the TypeScript SDK: three calls, each with the progress that it is told. */

import { Client, SSEClientTransport } from '@modelcontextprotocol/client';

const client = new Client({ name: 'sse', version: '1.0.0' }, { capabilities: {} });
await client.connect(new SSEClientTransport(new URL(process.argv[2])));
for (const on of ['a', 'b', 'c']) {
  const told = [];
  const onprogress = ({ message }) => told.push(message);
  const { content } = await client.callTool({ name: 'work', arguments: { on } }, { onprogress });
  console.log(content[0].text, ...told);
}
await client.close();
