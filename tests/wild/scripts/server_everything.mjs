/** The everything server as it is shipped, with one line on standard output when it listens. */

import { parseArgs } from 'node:util';

const { values: options } = parseArgs({
  options: {
    port: { type: 'string' },
    stdio: { type: 'boolean', default: false },
    transport: { type: 'string', default: 'streamableHttp' },
  },
});
const shipped = new URL(
  '../node_modules/@modelcontextprotocol/server-everything/dist/transports/',
  import.meta.url,
);

if (!options.stdio) {
  process.env.PORT = options.port;
  const announce = console.log;
  const path = options.transport === 'sse' ? 'sse' : 'mcp';
  console.log = () => {};
  console.error = (text) => {
    if (/ on port \d+$/.test(text)) announce(`listening on http://127.0.0.1:${options.port}/${path}`);
  };
}
await import(new URL(`${options.stdio ? 'stdio' : options.transport}.js`, shipped));
