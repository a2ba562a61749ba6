// Test host: the TypeScript SDK's client. Lists all tools, makes the planned calls, prints one JSON object.
//
// Usage: host_typescript.mjs ERA PLAN COMMAND [ARG…] or URL, with ERA `legacy` or `auto`. Knows nothing of the gateway; run by
// interop.py from the folder its packages are installed in.

import { readFileSync } from 'node:fs';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const [era, plan, command, ...args] = process.argv.slice(2);
const client = new Client(
  { name: 'interop-typescript', version: '1' },
  era === 'auto' ? { versionNegotiation: { mode: 'auto' } } : {},
);
await client.connect(
  command.startsWith('http://')
    ? new StreamableHTTPClientTransport(new URL(command))
    : new StdioClientTransport({ command, args, stderr: 'inherit' }),
);

async function names() {
  const tools = [];
  let cursor;
  do {
    const page = await client.listTools(cursor === undefined ? undefined : { cursor }, { cacheMode: 'bypass' });
    tools.push(...page.tools.map((tool) => tool.name));
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return tools;
}

const { calls, awaited } = JSON.parse(readFileSync(plan, 'utf8'));
let tools = await names();
// A server that is slow to start comes into the list later.
const until = Date.now() + 30_000;
while (!awaited.every((name) => tools.includes(name)) && Date.now() < until) {
  await new Promise((resolve) => setTimeout(resolve, 300));
  tools = await names();
}
const results = [];
for (const call of calls) {
  try {
    results.push(await client.callTool({ name: call.name, arguments: call.arguments }));
  } catch (error) {
    results.push({ error: { code: error.code, message: error.message } });
  }
}
const version = client.getNegotiatedProtocolVersion();
await client.close();
process.stdout.write(JSON.stringify({ version, tools, results }) + '\n');
