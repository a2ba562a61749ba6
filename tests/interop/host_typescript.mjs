// Test host: the TypeScript SDK's client. Lists all tools, makes the planned calls, prints one JSON object.
//
// Usage: host_typescript.mjs ERA PLAN COMMAND [ARG…], with ERA `legacy` or `auto`. Knows nothing of the gateway; run by
// interop.py from the folder its packages are installed in.

import { readFileSync } from 'node:fs';
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const [era, plan, command, ...args] = process.argv.slice(2);
const client = new Client(
  { name: 'interop-typescript', version: '1' },
  era === 'auto' ? { versionNegotiation: { mode: 'auto' } } : {},
);
await client.connect(new StdioClientTransport({ command, args, stderr: 'inherit' }));
const tools = [];
let cursor;
do {
  const page = await client.listTools(cursor === undefined ? undefined : { cursor });
  tools.push(...page.tools.map((tool) => tool.name));
  cursor = page.nextCursor;
} while (cursor !== undefined);
const results = [];
for (const call of JSON.parse(readFileSync(plan, 'utf8'))) {
  try {
    results.push(await client.callTool({ name: call.name, arguments: call.arguments }));
  } catch (error) {
    results.push({ error: { code: error.code, message: error.message } });
  }
}
const version = client.getNegotiatedProtocolVersion();
await client.close();
process.stdout.write(JSON.stringify({ version, tools, results }) + '\n');
