/**
 * A client on the TypeScript SDK that gets itself a token, by the SDK's own OAuth flow.
 *
 * Usage: node authorizing_typescript.mjs URL
 */

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

class Provider {
  redirectUrl = 'http://localhost:3030/callback';
  clientMetadata = { client_name: 'authorizing-typescript', redirect_uris: [this.redirectUrl] };
  state = () => crypto.randomUUID();
  clientInformation = () => this.client;
  saveClientInformation = (client) => { this.client = client; };
  tokens = () => this.kept;
  saveTokens = (tokens) => { this.kept = tokens; };
  codeVerifier = () => this.verifier;
  saveCodeVerifier = (verifier) => { this.verifier = verifier; };

  /** Follow to where the user would be asked, and take what comes back. */
  async redirectToAuthorization(url) {
    const response = await fetch(url, { redirect: 'manual' });
    this.returned = new URL(response.headers.get('location')).searchParams;
    if (this.returned.get('state') !== url.searchParams.get('state')) throw new Error('another state');
  }
}

const authProvider = new Provider();
const url = new URL(process.argv[2]);
const client = new Client(
  { name: 'authorizing-typescript', version: '1.0.0' },
  { versionNegotiation: { mode: 'auto' } },
);
let transport = new StreamableHTTPClientTransport(url, { authProvider });
try {
  await client.connect(transport);
} catch (error) {
  if (error.name !== 'UnauthorizedError' && error.constructor.name !== 'UnauthorizedError') throw error;
  await transport.finishAuth(authProvider.returned);
  transport = new StreamableHTTPClientTransport(url, { authProvider });
  await client.connect(transport);
}
const result = await client.callTool({ name: 'whoami', arguments: {} });
console.log(result.content[0].text);
await client.close();
